use std::time::Duration;

use diesel::sql_types::{BigInt, Nullable};
use diesel::{QueryResult, SqliteConnection};

use super::classify::failed;
use super::connection::on_thread;
use super::enqueue::all_or_none;
use super::row::{self, bind_envelope, micros_of};
use super::statement::{Sql, Value};
use super::{Connection, SqliteStore, lease};
use crate::message::{MessageId, Slot};
use crate::store::{Due, Fence, NewScheduled, ScheduleStore, StoreError, Tables};

const SCHEDULE: &str = "schedule messages";
const CANCEL: &str = "cancel a scheduled message";

const DELETE: &str = "DELETE FROM {posta}scheduled WHERE message_id = ?";

const INSERT: &str = "INSERT INTO {posta}scheduled
         (message_id, message_type, version, ordering_key, headers, content_type, payload, slot, due_at)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, COALESCE(?, {now} + ?))";

/// The first of each lane that are due, and of those the first: of a long backlog no more is read
/// than its beginning.
///
/// Binds the lanes (as JSON) and the limit twice.
const DUE: &str = "SELECT s.position
     FROM json_each(?) AS lane CROSS JOIN {posta}scheduled AS s ON s.position IN (
         SELECT position FROM {posta}scheduled WHERE slot = lane.value AND due_at <= {now}
         ORDER BY due_at, position LIMIT ?)
     ORDER BY s.due_at, s.position LIMIT ?";

/// Moves one message. Whose id waits in the outbox already is there.
const ENQUEUE: &str = "INSERT INTO {posta}outbox
         (message_id, message_type, version, ordering_key, headers, content_type, payload, slot)
     SELECT message_id, message_type, version, ordering_key, headers, content_type, payload, slot
     FROM {posta}scheduled WHERE position = ?
     ON CONFLICT (message_id) DO NOTHING";

/// Writes messages that are due later, all or none, in the order given.
pub(super) async fn insert(
    connection: &mut Connection,
    tables: &Tables,
    scheduled: &[NewScheduled],
) -> Result<(), StoreError> {
    if scheduled.is_empty() {
        return Ok(());
    }
    let (insert, scheduled) = (Sql::new(tables, INSERT), scheduled.to_vec());
    on_thread(connection, SCHEDULE, move |connection| {
        insert_all(connection, &insert, &scheduled)
    })
    .await
}

/// As [`insert`], on the thread that calls.
pub(crate) fn insert_blocking(
    connection: &mut SqliteConnection,
    tables: &Tables,
    scheduled: &[NewScheduled],
) -> Result<(), StoreError> {
    if scheduled.is_empty() {
        return Ok(());
    }
    insert_all(connection, &Sql::new(tables, INSERT), scheduled)
        .map_err(|error| failed(SCHEDULE, error))
}

fn insert_all(
    connection: &mut SqliteConnection,
    insert: &Sql,
    scheduled: &[NewScheduled],
) -> QueryResult<()> {
    all_or_none(connection, scheduled, |connection, new| {
        let (at, after) = match new.due {
            Due::At(time) => (Some(micros_of(time)), None),
            Due::After(delay) => (None, Some(delay)),
        };
        bind_envelope(insert.statement(), &new.envelope)
            .bind(new.envelope.slot().number())
            .bind(at)
            .bind(after)
            .execute(connection)
            .map(|_| ())
    })
}

/// Takes a scheduled message back; whether there was one.
pub(super) async fn cancel(
    connection: &mut Connection,
    tables: &Tables,
    id: MessageId,
) -> Result<bool, StoreError> {
    let cancel = Sql::new(tables, DELETE).bind(id.as_uuid());
    on_thread(connection, CANCEL, |connection| {
        cancel.execute(connection).map(|gone| gone == 1)
    })
    .await
}

/// As [`cancel`], on the thread that calls.
pub(crate) fn cancel_blocking(
    connection: &mut SqliteConnection,
    tables: &Tables,
    id: MessageId,
) -> Result<bool, StoreError> {
    Sql::new(tables, DELETE)
        .bind(id.as_uuid())
        .execute(connection)
        .map(|gone| gone == 1)
        .map_err(|error| failed(CANCEL, error))
}

impl ScheduleStore for SqliteStore {
    async fn enqueue_due(
        &self,
        connection: &mut Connection,
        fences: &[Fence],
        lanes: &[Slot],
        limit: usize,
    ) -> Result<usize, StoreError> {
        let due = self.sql(DUE);
        let enqueue = self.sql(ENQUEUE);
        let forget = self.sql("DELETE FROM {posta}scheduled WHERE position = ?");
        let (store, fences, lanes) = (self.clone(), fences.to_vec(), numbers(lanes));
        on_thread(connection, "enqueue what is due", move |connection| {
            let held = lease::held_lanes(&store, connection, &fences)?;
            let lanes: Vec<u8> = lanes
                .into_iter()
                .filter(|lane| held.contains(lane))
                .collect();
            let due = due
                .bind(Value::json(&lanes))
                .bind(limit)
                .bind(limit)
                .rows::<BigInt, i64>(connection)?;
            for position in &due {
                enqueue.bind(*position).execute(connection)?;
                forget.bind(*position).execute(connection)?;
            }
            Ok(due.len())
        })
        .await
    }

    async fn next_scheduled(
        &self,
        connection: &mut Connection,
        lanes: &[Slot],
    ) -> Result<Option<Duration>, StoreError> {
        let next = self
            .sql(
                "SELECT MIN((SELECT MIN(due_at) FROM {posta}scheduled WHERE slot = lane.value)) - {now}
                 FROM json_each(?) AS lane",
            )
            .bind(Value::json(&numbers(lanes)));
        on_thread(connection, "read the next scheduled time", |connection| {
            let micros = next.one::<Nullable<BigInt>, Option<i64>>(connection)?;
            Ok(micros.map(row::duration))
        })
        .await
    }

    async fn scheduled(&self, connection: &mut Connection) -> Result<u64, StoreError> {
        let count = self
            .sql("SELECT COUNT(*) FROM {posta}scheduled")
            .statement();
        on_thread(connection, "count scheduled messages", |connection| {
            count.one::<BigInt, i64>(connection).map(row::number)
        })
        .await
    }
}

/// The lanes' numbers, each once.
fn numbers(lanes: &[Slot]) -> Vec<u8> {
    let mut numbers: Vec<u8> = lanes.iter().map(|lane| lane.number()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}
