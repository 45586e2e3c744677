use std::collections::BTreeMap;

use bytes::Bytes;
use diesel::data_types::PgTimestamp;
use diesel::sql_types::{BigInt, Binary, Bool, Integer, Nullable, SmallInt, Text, Timestamptz};

use super::parts::origin;
use crate::message::{RawMessage, Slot};
use crate::store::postgres::columns::{instant, stored, texts};
use crate::store::postgres::duration::duration;
use crate::store::{
    DeadLetter, LetterGroup, LetterId, LetterState, Revision, StoreError, StoreErrorKind, Successor,
};

type MessageColumns = (
    Nullable<Text>,
    Nullable<Text>,
    Nullable<Text>,
    Text,
    Nullable<Timestamptz>,
    Nullable<BigInt>,
    Nullable<Text>,
    Binary,
);

type Message = (
    Option<String>,
    Option<String>,
    Option<String>,
    String,
    Option<PgTimestamp>,
    Option<i64>,
    Option<String>,
    Vec<u8>,
);

type FailureColumns = (Text, Text, Text, Integer, Integer, Integer);

type Failure = (String, String, String, i32, i32, i32);

type StandingColumns = (
    Text,
    Bool,
    Nullable<SmallInt>,
    Nullable<Timestamptz>,
    Timestamptz,
    Nullable<Timestamptz>,
    BigInt,
);

type Standing = (
    String,
    bool,
    Option<i16>,
    Option<PgTimestamp>,
    PgTimestamp,
    Option<PgTimestamp>,
    i64,
);

/// A letter's columns, as [`super::texts`] selects them.
pub(super) type LetterColumns = (
    BigInt,
    Nullable<Text>,
    MessageColumns,
    FailureColumns,
    StandingColumns,
);

/// A letter as those columns give it.
pub(super) type LetterRow = (i64, Option<String>, Message, Failure, Standing);

/// The letter of a row.
pub(super) fn letter(
    (position, consumer, message, failure, standing): LetterRow,
    operation: &'static str,
) -> Result<DeadLetter, StoreError> {
    let (reason, error, fingerprint, attempts, replays, revision) = failure;
    let (state, parked, slot, first_failed_at, dead_at, ended_at, successors) = standing;
    let state = LetterState::of(&state).ok_or_else(|| {
        let why = format!("dead letter {position} is in the state {state:?}");
        StoreError::new(operation, StoreErrorKind::Corrupt, why)
    })?;
    Ok(DeadLetter {
        id: LetterId(position),
        origin: origin(consumer),
        message: raw(message),
        reason,
        error,
        fingerprint,
        attempts: number(attempts),
        replays: number(replays),
        revision: number(revision),
        state,
        parked,
        slot: slot
            .and_then(|slot| u8::try_from(slot).ok())
            .and_then(Slot::new),
        first_failed_at: first_failed_at.and_then(instant),
        dead_at: stored(dead_at, operation)?,
        ended_at: ended_at.and_then(instant),
        successors: successors.unsigned_abs(),
    })
}

fn raw(message: Message) -> RawMessage {
    let (id, message_type, key, stored_headers, enqueued_at, version, content_type, payload) =
        message;
    let mut headers = BTreeMap::new();
    // One that plain SQL has made no text of is shown as its JSON.
    let _ = texts(&stored_headers, &mut headers);
    RawMessage {
        id,
        message_type,
        version,
        key,
        headers,
        content_type,
        payload: Bytes::from(payload),
        enqueued_at: enqueued_at.and_then(instant),
    }
}

/// A successor's columns; the last is how long it waits, in microseconds.
pub(super) type SuccessorColumns = (Text, Text, Integer, Integer, BigInt);

/// The successor of a row.
pub(super) fn successor(
    (message_id, message_type, payload_bytes, attempts, waiting): (String, String, i32, i32, i64),
) -> Successor {
    Successor {
        message_id,
        message_type,
        payload_bytes: u64::from(payload_bytes.unsigned_abs()),
        attempts: number(attempts),
        waiting_for: duration(waiting),
    }
}

/// A group's columns.
pub(super) type GroupColumns = (
    Nullable<Text>,
    Nullable<Text>,
    Text,
    Text,
    BigInt,
    BigInt,
    BigInt,
    Timestamptz,
    Timestamptz,
);

/// A group as those columns give it.
pub(super) type GroupRow = (
    Option<String>,
    Option<String>,
    String,
    String,
    i64,
    i64,
    i64,
    PgTimestamp,
    PgTimestamp,
);

/// The group of a row.
pub(super) fn group(row: GroupRow, operation: &'static str) -> Result<LetterGroup, StoreError> {
    let (consumer, message_type, reason, fingerprint, letters, keys, successors, oldest, newest) =
        row;
    Ok(LetterGroup {
        origin: origin(consumer),
        message_type,
        reason,
        fingerprint,
        letters: letters.unsigned_abs(),
        keys_parked: keys.unsigned_abs(),
        successors: successors.unsigned_abs(),
        oldest: stored(oldest, operation)?,
        newest: stored(newest, operation)?,
    })
}

/// A revision's columns.
pub(super) type RevisionColumns = (
    Integer,
    Binary,
    Nullable<BigInt>,
    Nullable<Text>,
    Text,
    Text,
    Timestamptz,
);

/// A revision as those columns give it.
pub(super) type RevisionRow = (
    i32,
    Vec<u8>,
    Option<i64>,
    Option<String>,
    String,
    String,
    PgTimestamp,
);

/// The revision of a row.
pub(super) fn revision(row: RevisionRow, operation: &'static str) -> Result<Revision, StoreError> {
    let (revision, payload, version, content_type, who, reason, revised_at) = row;
    Ok(Revision {
        number: number(revision),
        payload: Bytes::from(payload),
        version,
        content_type,
        who,
        reason,
        revised_at: stored(revised_at, operation)?,
    })
}

/// A number that a CHECK keeps from being negative.
pub(super) fn number(stored: i32) -> u32 {
    u32::try_from(stored).unwrap_or_default()
}
