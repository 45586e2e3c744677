//! A dead letter's columns, and a dead letter of them.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use diesel::result::Error;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use diesel::{QueryResult, SqliteConnection};

use super::SqliteStore;
use super::row::{self, corrupt};
use super::statement::{Statement, Value};
use crate::message::{RawMessage, Slot};
use crate::store::{DeadLetter, LetterId, LetterState, Origin};

/// How many messages wait behind a letter `l` at its consumer, if its key waits for it.
pub(super) const SUCCESSORS: &str = "CASE
         WHEN l.parked = 0 OR l.consumer IS NULL THEN 0
         ELSE (
             SELECT COUNT(*) FROM {posta}retry AS p CROSS JOIN {posta}retry AS s
                 ON s.consumer = p.consumer AND s.ordering_key = p.ordering_key AND s.position > p.position
                     AND s.parked = 0
             WHERE p.dead_letter = l.position) END";

/// Which rows of the outbox are of the keys of the places (slot, place) in `letter`: a table `o`
/// and its condition.
///
/// No index leads from a key to the rows that never failed: each enqueue would pay for it. So the
/// outbox is read once for all letters, if any has a place there. Who counts them sorts them with
/// the places by key and position, and sums up from the end; a place that goes out again is one of
/// them too, and not counted for itself.
pub(super) const QUEUED: &str = "{posta}outbox AS o
     WHERE o.parked = 0 AND EXISTS (SELECT 1 FROM letter WHERE place IS NOT NULL)
       AND (o.slot, o.ordering_key) IN (SELECT slot, place FROM letter WHERE place IS NOT NULL)";

/// How many messages wait in the outbox behind each of some letters (a JSON list of ids).
const COUNTED: &str = "WITH letter (id, slot, place, position) AS MATERIALIZED (
         SELECT p.dead_letter, p.slot, p.ordering_key, p.position
         FROM json_each(?) AS l CROSS JOIN {posta}outbox AS p ON p.dead_letter = l.value)
     SELECT id, successors FROM (
         SELECT id, SUM(waits) OVER (PARTITION BY slot, place ORDER BY position DESC, waits) AS successors
         FROM (
             SELECT id, slot, place, position, 0 AS waits FROM letter
             UNION ALL
             SELECT NULL, o.slot, o.ordering_key, o.position, 1 FROM {queued}))
     WHERE id IS NOT NULL";

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
    store: &SqliteStore,
    letters: Statement,
    connection: &mut SqliteConnection,
) -> QueryResult<Vec<DeadLetter>> {
    let mut letters = letters
        .rows::<(MessageTypes, StateTypes, TimeTypes), Columns>(connection)?
        .into_iter()
        .map(letter)
        .collect::<QueryResult<Vec<DeadLetter>>>()?;
    let parked: Vec<i64> = letters
        .iter()
        .filter(|letter| letter.parked && letter.origin == Origin::Dispatch)
        .map(|letter| letter.id.0)
        .collect();
    if parked.is_empty() {
        return Ok(letters);
    }
    let queued: HashMap<i64, i64> = store
        .sql(&COUNTED.replace("{queued}", QUEUED))
        .bind(Value::json(&parked))
        .rows::<(BigInt, BigInt), (i64, i64)>(connection)?
        .into_iter()
        .collect();
    for letter in &mut letters {
        if let Some(count) = queued.get(&letter.id.0) {
            letter.successors = row::number(*count);
        }
    }
    Ok(letters)
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
