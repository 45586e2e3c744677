//! The rows of the retry table: how a message joins it, and how it is read.

use diesel::sql_types::{BigInt, Nullable};
use diesel::{QueryResult, SqliteConnection};

use super::SqliteStore;
use super::row::{self, COLUMNS, ColumnTypes, Columns, bind_envelope, micros_of};
use super::statement::{Sql, Statement};
use crate::store::text::storable;
use crate::store::{HeldRow, LetterId, NewHold};

/// A message joins the table.
///
/// Binds what [`bind`] does.
const HOLD: &str = "INSERT INTO {posta}retry (consumer, slot, message_id, message_type, version, ordering_key,
         headers, content_type, payload, enqueued_at, attempts, last_error, failed_at, due_at, parked, dead_letter)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, CASE WHEN ? > 0 THEN {now} END,
         CASE WHEN ? = 1 THEN {never} ELSE {now} + ? END, ?, ?)
     ON CONFLICT (consumer, message_id) DO NOTHING";

/// A row with its message.
type HeldTypes = (
    (
        BigInt,
        BigInt,
        Nullable<BigInt>,
        Nullable<BigInt>,
        Nullable<BigInt>,
        BigInt,
    ),
    ColumnTypes,
);

/// Its values: position, attempts, time without a handler, first failure, letter, whether parked.
type Held = (
    (i64, i64, Option<i64>, Option<i64>, Option<i64>, i64),
    Columns,
);

impl SqliteStore {
    /// The statement that [`bind`] binds.
    pub(super) fn hold_row(&self) -> Sql {
        self.sql(HOLD)
    }

    /// The rows of a condition, for [`read`].
    pub(super) fn held_row(&self, which: &str) -> Sql {
        self.sql(&format!(
            "SELECT position, attempts, {{now}} - unhandled_since, failed_at, dead_letter, parked, {COLUMNS}
             FROM {{posta}}retry {which}"
        ))
    }
}

/// Binds the values of [`HOLD`]; with the letter that is replayed with it, if it is one.
pub(super) fn bind(
    hold: &Sql,
    consumer: &str,
    new: NewHold,
    replayed: Option<LetterId>,
) -> Statement {
    let NewHold {
        mut envelope,
        slot,
        mut attempts,
        mut error,
        mut delay,
        parked,
    } = new;
    if parked.is_some() {
        // Bytes, tries and error are the dead letter's.
        (envelope.payload, attempts, error, delay) = (Default::default(), 0, None, None);
    }
    let row = hold.bind(consumer).bind(slot.number());
    bind_envelope(row, &envelope)
        .bind(envelope.enqueued_at.map(micros_of))
        .bind(attempts)
        .bind(error.as_deref().map(storable))
        .bind(attempts)
        .bind(parked.is_some())
        // NULL for a successor: now plus NULL is NULL.
        .bind(delay)
        .bind(parked.is_some())
        .bind(parked.or(replayed).map(|letter| letter.0))
}

/// Runs a statement of [`SqliteStore::held_row`].
pub(super) fn read(
    rows: Statement,
    connection: &mut SqliteConnection,
) -> QueryResult<Vec<HeldRow>> {
    rows.rows::<HeldTypes, _>(connection)?
        .into_iter()
        .map(held_row_of)
        .collect()
}

fn held_row_of(
    ((position, attempts, unhandled_for, failed_at, letter, parked), columns): Held,
) -> QueryResult<HeldRow> {
    Ok(HeldRow {
        position,
        envelope: row::own_envelope(columns)?,
        attempts: row::count(attempts),
        unhandled_for: unhandled_for.map(row::duration),
        failed_at: row::time_if_any(failed_at)?,
        letter: letter.map(LetterId),
        parked: parked == 1,
    })
}
