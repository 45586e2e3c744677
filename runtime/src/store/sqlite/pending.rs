//! What waits in the outbox: rows that plain SQL wrote get their slot, and the rows of some lanes are read.

use std::ops::Range;

use diesel::sql_types::{BigInt, Binary, Nullable};
use diesel::{QueryResult, SqliteConnection};
use uuid::Uuid;

use super::SqliteStore;
use super::merge::first_positions;
use super::row::{self, COLUMNS, ColumnTypes, Columns, corrupt};
use super::statement::Sql;
use crate::message::{OrderingKey, Slot};
use crate::store::{OutboxRow, RowId};

/// Rows without a slot that one reading of what is pending gives one, at most.
const ADOPTED_MAX: usize = 1000;

/// The statements of one reading.
struct Reading {
    positions: Sql,
    row: Sql,
}

/// Gives slots to the first rows without one; how many rows got one.
pub(super) fn adopt(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    limit: usize,
) -> QueryResult<usize> {
    let rows = store
        .sql(
            "SELECT position, CAST(message_id AS BLOB), CAST(ordering_key AS BLOB)
             FROM {posta}outbox WHERE slot IS NULL ORDER BY position LIMIT ?",
        )
        .bind(limit)
        .rows::<(BigInt, Binary, Nullable<Binary>), (i64, Vec<u8>, Option<Vec<u8>>)>(connection)?;
    let adopt = store.sql("UPDATE {posta}outbox SET slot = ? WHERE position = ?");
    let adopted = rows.len();
    for (position, id, key) in rows {
        let id = Uuid::from_slice(&id).map_err(|_| corrupt("a message id has not 16 bytes"))?;
        // A key that is none cannot be ordered by: that row is malformed, and fails alone in its id's lane.
        let key = key.and_then(|key| OrderingKey::new(String::from_utf8(key).ok()?).ok());
        let slot = Slot::of(key.as_ref(), id.into());
        adopt
            .bind(slot.number())
            .bind(position)
            .execute(connection)?;
    }
    Ok(adopted)
}

/// The rows of these lanes that can be dispatched now, oldest first.
pub(super) fn read(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    lanes: &[Slot],
    in_flight: &[RowId],
    limit: usize,
) -> QueryResult<Vec<OutboxRow>> {
    let end = adopt_first(store, connection)?;
    let reading = Reading {
        // The first NOT EXISTS: a key waits for its row on hold. The index outbox_held holds such rows only.
        positions: store.sql(
            "SELECT position FROM {posta}outbox AS o
             WHERE slot = ? AND position > ? AND position < ?
               AND (held_until IS NULL OR held_until <= {now})
               AND NOT EXISTS (
                   SELECT 1 FROM {posta}outbox AS h
                   WHERE h.slot = o.slot AND h.ordering_key = o.ordering_key AND h.position < o.position
                     AND h.held_until > {now})
               AND position NOT IN (SELECT value FROM json_each(?))
             ORDER BY position LIMIT ?",
        ),
        row: store.sql(&format!(
            "SELECT slot, attempts, {COLUMNS} FROM {{posta}}outbox WHERE position = ?"
        )),
    };
    let positions = first_positions(lanes, limit, |lane, after, count| {
        reading.positions_of(connection, lane, in_flight, after..end, count)
    })?;
    positions
        .into_iter()
        .map(|position| reading.row_at(connection, position))
        .collect()
}

/// Gives slots to rows without one before anything is read, so that within a key none is overtaken by a later row that has
/// a slot. The position before which every row has one.
fn adopt_first(store: &SqliteStore, connection: &mut SqliteConnection) -> QueryResult<i64> {
    if adopt(store, connection, ADOPTED_MAX)? < ADOPTED_MAX {
        return Ok(i64::MAX);
    }
    let first = store
        .sql("SELECT MIN(position) FROM {posta}outbox WHERE slot IS NULL")
        .statement()
        .one::<Nullable<BigInt>, Option<i64>>(connection)?;
    Ok(first.unwrap_or(i64::MAX))
}

impl Reading {
    fn positions_of(
        &self,
        connection: &mut SqliteConnection,
        lane: Slot,
        in_flight: &[RowId],
        between: Range<i64>,
        count: usize,
    ) -> QueryResult<Vec<i64>> {
        let in_flight: Vec<i64> = in_flight
            .iter()
            .filter(|row| row.slot == lane)
            .map(|row| row.position)
            .collect();
        self.positions
            .bind(lane.number())
            .bind(between.start)
            .bind(between.end)
            .bind(serde_json::to_string(&in_flight).expect("numbers have a JSON form"))
            .bind(count)
            .rows::<BigInt, i64>(connection)
    }

    fn row_at(&self, connection: &mut SqliteConnection, position: i64) -> QueryResult<OutboxRow> {
        let (slot, attempts, columns) = self
            .row
            .bind(position)
            .one::<(BigInt, BigInt, ColumnTypes), (i64, i64, Columns)>(connection)?;
        let slot = u8::try_from(slot).ok().and_then(Slot::new);
        Ok(OutboxRow {
            id: RowId {
                slot: slot.ok_or_else(|| corrupt("a slot is out of range"))?,
                position,
            },
            attempts: row::count(attempts),
            message: row::envelope(columns),
        })
    }
}
