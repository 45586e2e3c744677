//! A dead letter's columns, and a dead letter of them.

use std::collections::BTreeMap;

use bytes::Bytes;
use diesel::result::Error;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use diesel::{QueryResult, SqliteConnection};

use super::row::{self, corrupt};
use super::statement::Statement;
use crate::message::{RawMessage, Slot};
use crate::store::{DeadLetter, LetterId, LetterState, Origin};

/// How many messages wait behind a letter `l` whose key waits for it. Those of the outbox by its two
/// indexes: of a lane's front, and of its rows on hold.
pub(super) const SUCCESSORS: &str = "CASE
         WHEN l.parked = 0 THEN 0
         WHEN l.consumer IS NULL THEN (
             SELECT (
                 SELECT COUNT(*) FROM {posta}outbox AS s
                 WHERE s.slot = p.slot AND s.position > p.position AND s.ordering_key = p.ordering_key
                   AND s.held_until IS NULL) + (
                 SELECT COUNT(*) FROM {posta}outbox AS s
                 WHERE s.slot = p.slot AND s.position > p.position AND s.ordering_key = p.ordering_key
                   AND s.held_until IS NOT NULL AND s.parked = 0)
             FROM {posta}outbox AS p WHERE p.dead_letter = l.position)
         ELSE (
             SELECT COUNT(*) FROM {posta}retry AS p CROSS JOIN {posta}retry AS s
                 ON s.consumer = p.consumer AND s.ordering_key = p.ordering_key AND s.position > p.position
                     AND s.parked = 0
             WHERE p.dead_letter = l.position) END";

/// Letters with the payload, version and content type of their current revisions. `{successors}`
/// is [`SUCCESSORS`]; behind it comes the condition.
const LETTERS: &str = "SELECT l.position, l.consumer, l.message_id, l.message_type,
         CASE WHEN r.revision IS NULL THEN l.version ELSE r.version END, l.ordering_key, l.headers,
         CASE WHEN r.revision IS NULL THEN l.content_type ELSE r.content_type END, l.enqueued_at,
         CASE WHEN r.revision IS NULL THEN l.payload ELSE r.payload END,
         l.slot, l.reason, l.error, l.fingerprint, l.attempts, l.replays, l.revision, l.state, l.parked,
         l.first_failed_at, l.dead_at, l.ended_at, {successors}
     FROM {posta}dead_letter AS l LEFT JOIN {posta}dead_letter_revision AS r
         ON r.dead_letter = l.position AND r.revision = l.revision";

/// The text that selects letters, with what comes behind.
pub(super) fn select(which: &str) -> String {
    format!("{} {which}", LETTERS.replace("{successors}", SUCCESSORS))
}

type MessageTypes = (
    BigInt,
    Nullable<Text>,
    Nullable<Text>,
    Nullable<Text>,
    Nullable<BigInt>,
    Nullable<Text>,
    Text,
    Nullable<Text>,
    Nullable<BigInt>,
    Binary,
);

type MessageColumns = (
    i64,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<i64>,
    Option<String>,
    String,
    Option<String>,
    Option<i64>,
    Vec<u8>,
);

type StateTypes = (
    Nullable<BigInt>,
    Text,
    Text,
    Text,
    BigInt,
    BigInt,
    BigInt,
    Text,
    BigInt,
);

/// First failure, set aside, ended; and successors.
type TimeTypes = (Nullable<BigInt>, BigInt, Nullable<BigInt>, BigInt);
type TimeColumns = (Option<i64>, i64, Option<i64>, i64);

type StateColumns = (
    Option<i64>,
    String,
    String,
    String,
    i64,
    i64,
    i64,
    String,
    i64,
);

type Columns = (MessageColumns, StateColumns, TimeColumns);

/// Runs a statement that [`select`] made.
pub(super) fn read(
    letters: Statement,
    connection: &mut SqliteConnection,
) -> QueryResult<Vec<DeadLetter>> {
    letters
        .rows::<(MessageTypes, StateTypes, TimeTypes), Columns>(connection)?
        .into_iter()
        .map(letter)
        .collect()
}

fn letter((message, state, times): Columns) -> Result<DeadLetter, Error> {
    let (position, consumer, id, message_type, version, key, headers, content_type, at, payload) =
        message;
    let (slot, reason, error, fingerprint, attempts, replays, revision, word, parked) = state;
    let (first_failed_at, dead_at, ended_at, successors) = times;
    let headers: BTreeMap<String, String> = serde_json::from_str(&headers)
        .map_err(|error| corrupt(format!("a dead letter's headers: {error}")))?;
    Ok(DeadLetter {
        id: LetterId(position),
        origin: consumer.map_or(Origin::Dispatch, Origin::Consumer),
        message: RawMessage {
            id,
            message_type,
            version,
            key,
            headers,
            content_type,
            payload: Bytes::from(payload),
            enqueued_at: row::time_if_any(at)?,
        },
        reason,
        error,
        fingerprint,
        attempts: row::count(attempts),
        replays: row::count(replays),
        revision: row::count(revision),
        state: LetterState::of(&word)
            .ok_or_else(|| corrupt(format!("{word:?} is no state of a dead letter")))?,
        parked: parked == 1,
        slot: slot.map(slot_of).transpose()?,
        first_failed_at: row::time_if_any(first_failed_at)?,
        dead_at: row::time(dead_at)?,
        ended_at: row::time_if_any(ended_at)?,
        successors: row::number(successors),
    })
}

fn slot_of(number: i64) -> Result<Slot, Error> {
    let slot = u8::try_from(number).ok().and_then(Slot::new);
    slot.ok_or_else(|| corrupt("a slot is out of range"))
}
