//! Places: rows of the retry table and of the outbox that stand for a dead letter, so that their
//! keys wait behind them. They have no payload; the message is the letter's.

use std::time::Duration;

use diesel::sql_types::BigInt;
use diesel::{QueryResult, SqliteConnection};

use super::row::{bind_envelope, micros_of};
use super::statement::Statement;
use super::{SqliteStore, held};
use crate::message::{Envelope, Slot};
use crate::store::{LetterId, NewHold};

/// Makes a row of the retry table a place.
pub(super) fn park_held(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    consumer: &str,
    position: i64,
    letter: LetterId,
) -> QueryResult<bool> {
    store
        .sql(
            "UPDATE {posta}retry SET parked = 1, dead_letter = ?, due_at = {never}, claimed_by = NULL, payload = x''
             WHERE position = ? AND consumer = ? AND parked = 0",
        )
        .bind(letter.0)
        .bind(position)
        .bind(consumer)
        .execute(connection)
        .map(|changed| changed == 1)
}

/// Puts a letter's message into its place in the retry table, or else at its end.
pub(super) fn readmit_held(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    consumer: &str,
    letter: LetterId,
    slot: Slot,
    envelope: Envelope,
) -> QueryResult<bool> {
    let there = store
        .sql(
            "SELECT COUNT(*) FROM {posta}retry
             WHERE consumer = ? AND message_id = ? AND (parked = 0 OR dead_letter <> ?)",
        )
        .bind(consumer)
        .bind(envelope.id.as_uuid())
        .bind(letter.0);
    if any(there, connection)? {
        return Ok(false);
    }
    let fill = store
        .sql(
            "UPDATE {posta}retry SET slot = ?, message_id = ?, message_type = ?, version = ?, ordering_key = ?,
                 headers = ?, content_type = ?, payload = ?, enqueued_at = ?, attempts = 0, last_error = NULL,
                 failed_at = NULL, unhandled_since = NULL, claimed_by = NULL, deaths = 0, held_at = {now}, due_at = {now}, parked = 0
             WHERE dead_letter = ? AND consumer = ? AND parked = 1",
        )
        .bind(slot.number());
    let fill = bind_envelope(fill, &envelope)
        .bind(envelope.enqueued_at.map(micros_of))
        .bind(letter.0)
        .bind(consumer);
    if fill.execute(connection)? > 0 {
        return Ok(true);
    }
    let key = envelope.key.as_ref().map(|key| key.as_str().to_owned());
    let on_hold = store
        .sql("SELECT COUNT(*) FROM (SELECT 1 FROM {posta}retry WHERE consumer = ? AND ordering_key = ? LIMIT 1)")
        .bind(consumer)
        .bind(key);
    let on_hold = any(on_hold, connection)?;
    let last = NewHold {
        envelope,
        slot,
        attempts: 0,
        error: None,
        delay: (!on_hold).then_some(Duration::ZERO),
        parked: None,
    };
    held::bind(&store.hold_row(), consumer, last, Some(letter))
        .execute(connection)
        .map(|_| true)
}

/// Makes a row of the outbox a place.
pub(super) fn park(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    (position, slot): (i64, u8),
    letter: LetterId,
) -> QueryResult<bool> {
    // A row that is parked has failed, whatever the reason, and says so to those who read the table.
    store
        .sql(
            "UPDATE {posta}outbox SET parked = 1, dead_letter = ?, held_until = {never}, payload = x'',
                 attempts = attempts + 1, last_error = COALESCE(last_error, 'dead letter ' || ?),
                 failed_at = COALESCE(failed_at, {now})
             WHERE position = ? AND slot = ? AND parked = 0",
        )
        .bind(letter.0)
        .bind(letter.0)
        .bind(position)
        .bind(slot)
        .execute(connection)
        .map(|changed| changed == 1)
}

/// Puts a letter's message into its place in the outbox, or else at its end.
pub(super) fn readmit(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    letter: LetterId,
    envelope: &Envelope,
) -> QueryResult<bool> {
    let there = store
        .sql(
            "SELECT COUNT(*) FROM {posta}outbox
             WHERE message_id = ? AND (parked = 0 OR dead_letter <> ?)",
        )
        .bind(envelope.id.as_uuid())
        .bind(letter.0);
    if any(there, connection)? {
        return Ok(false);
    }
    let fill = store
        .sql(
            "UPDATE {posta}outbox SET message_id = ?, message_type = ?, version = ?, ordering_key = ?, headers = ?,
                 content_type = ?, payload = ?, slot = ?, attempts = 0, last_error = NULL, held_until = NULL,
                 failed_at = NULL, parked = 0
             WHERE dead_letter = ? AND parked = 1",
        )
        .statement();
    let fill = bind_envelope(fill, envelope)
        .bind(envelope.slot().number())
        .bind(letter.0);
    if fill.execute(connection)? > 0 {
        return Ok(true);
    }
    let last = store
        .sql(
            "INSERT INTO {posta}outbox (message_id, message_type, version, ordering_key, headers, content_type, payload,
                 slot, enqueued_at, dead_letter)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, COALESCE(?, {now}), ?)",
        )
        .statement();
    bind_envelope(last, envelope)
        .bind(envelope.slot().number())
        .bind(envelope.enqueued_at.map(micros_of))
        .bind(letter.0)
        .execute(connection)
        .map(|_| true)
}

fn any(count: Statement, connection: &mut SqliteConnection) -> QueryResult<bool> {
    count.one::<BigInt, i64>(connection).map(|count| count > 0)
}
