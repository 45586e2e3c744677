//! What waits in the outbox: rows that plain SQL wrote get their slot, and the rows of some lanes
//! are read.

use diesel::sql_types::{BigInt, Binary, Nullable};
use diesel::{QueryResult, SqliteConnection};
use uuid::Uuid;

use super::merge::first_positions;
use super::row::{self, COLUMNS, ColumnTypes, Columns, corrupt};
use super::statement::Value;
use super::{SqliteStore, behind};
use crate::message::{OrderingKey, Slot};
use crate::store::{LetterId, OutboxRow, RowId};

/// Rows without a slot that one reading of what is pending gives one, at most.
const ADOPTED_MAX: usize = 1000;

/// Gives slots to the first rows without one; how many rows got one.
pub(super) fn adopt(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    limit: usize,
) -> QueryResult<usize> {
    let rows = store
        .sql(
            "SELECT position, CAST(message_id AS BLOB), CAST(ordering_key AS BLOB)
             FROM {posta}outbox WHERE slot IS NULL AND held_until IS NULL ORDER BY position LIMIT ?",
        )
        .bind(limit)
        .rows::<(BigInt, Binary, Nullable<Binary>), (i64, Vec<u8>, Option<Vec<u8>>)>(connection)?;
    let adopt = store.sql("UPDATE {posta}outbox SET slot = ? WHERE position = ?");
    let adopted = rows.len();
    for (position, id, key) in rows {
        let id = Uuid::from_slice(&id).map_err(|_| corrupt("a message id has not 16 bytes"))?;
        // A key that is none cannot be ordered by: that row is malformed, and fails alone in its
        // id's lane.
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
    behind::sort(store, connection, lanes)?;
    let in_flight: Vec<i64> = in_flight.iter().map(|row| row.position).collect();
    // One instant for the whole reading: were a hold to end between two of its statements, a row
    // would be read whose head was not.
    let now = now(store, connection)?;
    let lists = lists(store, connection, lanes, now)?;
    let front = store.sql(FRONT);
    let due = store.sql(DUE);
    let positions = first_positions(lists.len(), limit, |wanted, count| {
        let (fresh, held): (Vec<_>, Vec<_>) = wanted
            .iter()
            .partition(|(index, _)| lists[*index].1 == State::Fresh);
        let mut rows = Vec::new();
        for (state, sql, wanted) in [(State::Fresh, &front, fresh), (State::Due, &due, held)] {
            if wanted.is_empty() {
                continue;
            }
            let lanes: Vec<(usize, u8, i64)> = wanted
                .into_iter()
                .map(|(index, after)| (index, lists[index].0, after))
                .collect();
            let mut read = sql.bind(Value::json(&lanes)).bind(end).bind(now);
            if state == State::Due {
                read = read.bind(now);
            }
            let read = read
                .bind(Value::json(&in_flight))
                .bind(count)
                .rows::<(BigInt, BigInt), (i64, i64)>(connection)?;
            rows.extend(
                read.into_iter()
                    .map(|(list, position)| (list as usize, position)),
            );
        }
        Ok(rows)
    })?;
    rows_at(store, connection, &positions)
}

/// Rows of a lane that never failed, or that did and may be tried again: two indexes, so two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Fresh,
    Due,
}

/// Up to so many rows of each lane (list, slot, position to go on after) that never failed and
/// whose key does not wait.
///
/// A key waits for its row on hold; the index outbox_held has such rows only. A parked row is on hold
/// for ever. Rows whose key waits are walked over; how they do not become many is told in
/// [`behind`], whose rows are like those on hold here.
const FRONT: &str = "SELECT list.value ->> 0, o.position
     FROM json_each(?) AS list CROSS JOIN {posta}outbox AS o ON o.position IN (
         SELECT c.position FROM {posta}outbox AS c
         WHERE c.slot = list.value ->> 1 AND c.position > list.value ->> 2 AND c.position < ?
           AND c.held_until IS NULL
           AND NOT EXISTS (
               SELECT 1 FROM {posta}outbox AS h
               WHERE h.slot = c.slot AND h.ordering_key = c.ordering_key AND h.position < c.position
                 AND h.held_until > ?)
           AND c.position NOT IN (SELECT value FROM json_each(?))
         ORDER BY c.position LIMIT ?)";

/// The same of rows whose hold is over.
const DUE: &str = "SELECT list.value ->> 0, o.position
     FROM json_each(?) AS list CROSS JOIN {posta}outbox AS o ON o.position IN (
         SELECT c.position FROM {posta}outbox AS c
         WHERE c.slot = list.value ->> 1 AND c.position > list.value ->> 2 AND c.position < ?
           AND c.held_until <= ?
           AND NOT EXISTS (
               SELECT 1 FROM {posta}outbox AS h
               WHERE h.slot = c.slot AND h.ordering_key = c.ordering_key AND h.position < c.position
                 AND h.held_until > ?)
           AND c.position NOT IN (SELECT value FROM json_each(?))
         ORDER BY c.position LIMIT ?)";

/// The database's time.
fn now(store: &SqliteStore, connection: &mut SqliteConnection) -> QueryResult<i64> {
    let (now,) = store
        .sql("SELECT {now}")
        .statement()
        .one::<(BigInt,), (i64,)>(connection)?;
    Ok(now)
}

/// The lanes that have rows: most have none, most of the time.
fn lists(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    lanes: &[Slot],
    now: i64,
) -> QueryResult<Vec<(u8, State)>> {
    let lanes: Vec<u8> = lanes.iter().map(|lane| lane.number()).collect();
    let rows = store
        .sql(
            "SELECT lane.value,
                 EXISTS (SELECT 1 FROM {posta}outbox WHERE slot = lane.value AND held_until IS NULL),
                 EXISTS (SELECT 1 FROM {posta}outbox WHERE slot = lane.value AND held_until <= ?)
             FROM json_each(?) AS lane",
        )
        .bind(now)
        .bind(Value::json(&lanes))
        .rows::<(BigInt, BigInt, BigInt), (i64, i64, i64)>(connection)?;
    let of_lane = |(lane, fresh, due): (i64, i64, i64)| {
        let state = [(fresh, State::Fresh), (due, State::Due)];
        state
            .into_iter()
            .filter(|(any, _)| *any == 1)
            .map(move |(_, state)| (lane as u8, state))
    };
    Ok(rows.into_iter().flat_map(of_lane).collect())
}

/// Gives slots to rows without one before anything is read, so that within a key none is overtaken
/// by a later row that has a slot. The position before which every row has one.
fn adopt_first(store: &SqliteStore, connection: &mut SqliteConnection) -> QueryResult<i64> {
    if adopt(store, connection, ADOPTED_MAX)? < ADOPTED_MAX {
        return Ok(i64::MAX);
    }
    let first = store
        .sql("SELECT MIN(position) FROM {posta}outbox WHERE slot IS NULL AND held_until IS NULL")
        .statement()
        .one::<Nullable<BigInt>, Option<i64>>(connection)?;
    Ok(first.unwrap_or(i64::MAX))
}

type RowTypes = (BigInt, BigInt, BigInt, Nullable<BigInt>, Nullable<BigInt>);

/// Position, slot, attempts, first failure, and letter.
type Row = (i64, i64, i64, Option<i64>, Option<i64>);

/// The rows at these positions, in their order.
fn rows_at(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    positions: &[i64],
) -> QueryResult<Vec<OutboxRow>> {
    store
        .sql(&format!(
            "SELECT position, slot, attempts, failed_at, dead_letter, {COLUMNS}
             FROM json_each(?) AS p CROSS JOIN {{posta}}outbox ON position = p.value"
        ))
        .bind(Value::json(positions))
        .rows::<(RowTypes, ColumnTypes), (Row, Columns)>(connection)?
        .into_iter()
        .map(|((position, slot, attempts, failed_at, letter), columns)| {
            let slot = u8::try_from(slot).ok().and_then(Slot::new);
            let slot = slot.ok_or_else(|| corrupt("a slot is out of range"))?;
            Ok(OutboxRow {
                id: RowId { slot, position },
                attempts: row::count(attempts),
                failed_at: row::time_if_any(failed_at)?,
                letter: letter.map(LetterId),
                message: row::envelope(columns),
            })
        })
        .collect()
}
