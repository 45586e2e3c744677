use std::collections::{HashMap, HashSet};
use std::time::Duration;

use diesel::sql_types::{BigInt, Nullable};
use diesel::{QueryResult, SqliteConnection};

use super::behind::{Left, LeftTypes};
use super::connection::on_thread;
use super::statement::{Sql, Value};
use super::{Connection, SqliteStore, behind, dead_letter, lease, pending, place, recall, row};
use crate::message::{Envelope, Slot};
use crate::store::text::storable;
use crate::store::{
    Backlog, FailedRow, Fence, LetterId, OutboxRow, OutboxStore, Recall, RowId, StoreError,
};

impl OutboxStore for SqliteStore {
    async fn pending(
        &self,
        connection: &mut Connection,
        lanes: &[Slot],
        in_flight: &[RowId],
        limit: usize,
    ) -> Result<Vec<OutboxRow>, StoreError> {
        let (store, lanes, in_flight) = (self.clone(), lanes.to_vec(), in_flight.to_vec());
        on_thread(connection, "read pending rows", move |connection| {
            pending::read(&store, connection, &lanes, &in_flight, limit)
        })
        .await
    }

    async fn mark_dispatched(
        &self,
        connection: &mut Connection,
        fences: &[Fence],
        rows: &[RowId],
    ) -> Result<Vec<RowId>, StoreError> {
        let keep = self.sql(
            "INSERT INTO {posta}dispatched (position, message_id, message_type, version, ordering_key, headers,
                 content_type, enqueued_at, slot, attempts, payload)
             SELECT position, message_id, message_type, version, ordering_key, headers,
                 content_type, enqueued_at, slot, attempts, payload
             FROM json_each(?) AS row CROSS JOIN {posta}outbox
                 ON position = row.value ->> 0 AND slot = row.value ->> 1
             WHERE parked = 0",
        );
        let (store, remove) = (self.clone(), self.sql(REMOVE));
        self.settle(
            connection,
            "settle dispatched rows",
            fences,
            rows,
            move |connection, rows| {
                let rows = Value::json(&rows);
                keep.bind(rows.clone()).execute(connection)?;
                let removed = remove
                    .bind(rows)
                    .rows::<RemovedTypes, Removed>(connection)?;
                let letters: Vec<i64> = removed.iter().filter_map(|row| row.1).collect();
                dead_letter::replayed(&store, connection, &letters)?;
                left(&store, connection, removed)
            },
        )
        .await
    }

    async fn mark_failed(
        &self,
        connection: &mut Connection,
        fences: &[Fence],
        rows: &[FailedRow],
    ) -> Result<Vec<RowId>, StoreError> {
        let mark = self.sql(
            "UPDATE {posta}outbox SET attempts = attempts + 1, last_error = ?, held_until = {now} + ?,
                 failed_at = COALESCE(failed_at, {now})
             WHERE position = ? AND slot = ? AND parked = 0",
        );
        let ids: Vec<RowId> = rows.iter().map(|row| row.id).collect();
        let reasons: HashMap<(i64, u8), (String, Duration)> = rows
            .iter()
            .map(|row| (numbers(&row.id), (storable(&row.error), row.hold)))
            .collect();
        self.settle(
            connection,
            "settle failed rows",
            fences,
            &ids,
            move |connection, rows| {
                let mut changed = Vec::new();
                for (position, slot) in rows {
                    let (error, hold) = &reasons[&(position, slot)];
                    let mark = mark
                        .bind(error.as_str())
                        .bind(*hold)
                        .bind(position)
                        .bind(slot);
                    if mark.execute(connection)? == 1 {
                        changed.push((position, i64::from(slot)));
                    }
                }
                Ok(changed)
            },
        )
        .await
    }

    async fn remove(
        &self,
        connection: &mut Connection,
        fences: &[Fence],
        rows: &[RowId],
    ) -> Result<Vec<RowId>, StoreError> {
        let (store, remove) = (self.clone(), self.sql(REMOVE));
        self.settle(
            connection,
            "remove rows",
            fences,
            rows,
            move |connection, rows| {
                let removed = remove
                    .bind(Value::json(&rows))
                    .rows::<RemovedTypes, Removed>(connection)?;
                left(&store, connection, removed)
            },
        )
        .await
    }

    async fn park(
        &self,
        connection: &mut Connection,
        fences: &[Fence],
        rows: &[(RowId, LetterId)],
    ) -> Result<Vec<RowId>, StoreError> {
        let ids: Vec<RowId> = rows.iter().map(|(id, _)| *id).collect();
        let letters: HashMap<(i64, u8), LetterId> = rows
            .iter()
            .map(|(id, letter)| (numbers(id), *letter))
            .collect();
        let store = self.clone();
        self.settle(
            connection,
            "park rows",
            fences,
            &ids,
            move |connection, rows| {
                let mut changed = Vec::new();
                for row in rows {
                    if place::park(&store, connection, row, letters[&row])? {
                        changed.push((row.0, i64::from(row.1)));
                    }
                }
                Ok(changed)
            },
        )
        .await
    }

    async fn readmit(
        &self,
        connection: &mut Connection,
        letter: LetterId,
        envelope: &Envelope,
    ) -> Result<bool, StoreError> {
        let (store, envelope) = (self.clone(), envelope.clone());
        on_thread(connection, "put a row back", move |connection| {
            place::readmit(&store, connection, letter, &envelope)
        })
        .await
    }

    async fn unpark(
        &self,
        connection: &mut Connection,
        letter: LetterId,
    ) -> Result<bool, StoreError> {
        let store = self.clone();
        let unpark = self
            .sql(
                "DELETE FROM {posta}outbox WHERE dead_letter = ? AND parked = 1
                 RETURNING slot, CAST(ordering_key AS BLOB)",
            )
            .bind(letter.0);
        on_thread(connection, "let a parked key go on", move |connection| {
            let gone = unpark.rows::<LeftTypes, Left>(connection)?;
            let unparked = !gone.is_empty();
            behind::let_follow(&store, connection, gone.into_iter())?;
            Ok(unparked)
        })
        .await
    }

    async fn recall(
        &self,
        connection: &mut Connection,
        letter: LetterId,
        place: bool,
    ) -> Result<Recall, StoreError> {
        let store = self.clone();
        on_thread(connection, "take a row back", move |connection| {
            recall::row(&store, connection, letter, place)
        })
        .await
    }

    async fn adopt(&self, connection: &mut Connection, limit: usize) -> Result<usize, StoreError> {
        let store = self.clone();
        on_thread(connection, "adopt rows", move |connection| {
            pending::adopt(&store, connection, limit)
        })
        .await
    }

    async fn next_due(
        &self,
        connection: &mut Connection,
        lanes: &[Slot],
    ) -> Result<Option<Duration>, StoreError> {
        // A row whose hold is over is pending (or in flight), not on hold: it must not wake anybody
        // again. Parked rows wait for an operator.
        let next = self.sql(
            "SELECT MIN((SELECT MIN(held_until) FROM {posta}outbox WHERE slot = lane.value
                 AND held_until > {now} AND held_until < {behind})) - {now}
             FROM json_each(?) AS lane",
        );
        let lanes: Vec<u8> = lanes.iter().map(|lane| lane.number()).collect();
        let lanes = Value::json(&lanes);
        let micros = on_thread(connection, "read the next due time", move |connection| {
            next.bind(lanes)
                .one::<Nullable<BigInt>, Option<i64>>(connection)
        })
        .await?;
        Ok(micros.map(row::duration))
    }

    async fn backlog(&self, connection: &mut Connection) -> Result<Backlog, StoreError> {
        let all = self.sql("SELECT COUNT(*) FROM {posta}outbox");
        let held = self.sql("SELECT COUNT(*) FROM {posta}outbox WHERE held_until IS NOT NULL");
        let behind = self.sql("SELECT COUNT(*) FROM {posta}outbox WHERE held_until = {behind}");
        let parked = self
            .sql("SELECT COUNT(*) FROM {posta}outbox WHERE dead_letter IS NOT NULL AND parked = 1");
        // The first row is the oldest: one transaction writes at a time.
        let oldest = self.sql(
            "SELECT {now} - enqueued_at FROM {posta}outbox WHERE parked = 0 ORDER BY position LIMIT 1",
        );
        on_thread(connection, "measure the backlog", move |connection| {
            let mut count = |sql: Sql| {
                let count = sql.statement().one::<BigInt, i64>(connection)?;
                QueryResult::Ok(row::number(count))
            };
            let (all, held, parked) = (count(all)?, count(held)?, count(parked)?);
            let behind = count(behind)?;
            let oldest = oldest.statement().first::<BigInt, i64>(connection)?;
            Ok(Backlog {
                rows: all.saturating_sub(parked),
                held: held.saturating_sub(parked + behind),
                parked,
                oldest: oldest.map_or(Duration::ZERO, row::duration),
            })
        })
        .await
    }
}

/// Takes rows (position and slot) out of the outbox; returns those that were there, with the letters
/// that went out again with them. What a dead letter keeps as its place stays.
const REMOVE: &str = "DELETE FROM {posta}outbox
     WHERE (position, slot) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?)) AND parked = 0
     RETURNING position, dead_letter, slot,
         CASE WHEN attempts > 0 OR dead_letter IS NOT NULL THEN CAST(ordering_key AS BLOB) END";

type RemovedTypes = (BigInt, Nullable<BigInt>, LeftTypes);
type Removed = (i64, Option<i64>, Left);

/// Lets those follow that waited for these rows; returns where those were.
fn left(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    removed: Vec<Removed>,
) -> QueryResult<Vec<(i64, i64)>> {
    let rows = removed
        .iter()
        .map(|(position, _, (slot, _))| (*position, *slot));
    let rows = rows.collect();
    behind::let_follow(store, connection, removed.into_iter().map(|row| row.2))?;
    Ok(rows)
}

/// A row's position and slot, as statements want them.
fn numbers(row: &RowId) -> (i64, u8) {
    (row.position, row.slot.number())
}

impl SqliteStore {
    /// Changes the rows whose lanes the fences hold; returns those that changed, in the order
    /// given, each once.
    async fn settle(
        &self,
        connection: &mut Connection,
        operation: &'static str,
        fences: &[Fence],
        rows: &[RowId],
        change: impl FnOnce(&mut SqliteConnection, Vec<(i64, u8)>) -> QueryResult<Vec<(i64, i64)>>
        + Send
        + 'static,
    ) -> Result<Vec<RowId>, StoreError> {
        let (store, fences, rows) = (self.clone(), fences.to_vec(), rows.to_vec());
        on_thread(connection, operation, move |connection| {
            let lanes = lease::held_lanes(&store, connection, &fences)?;
            let mut ours = Vec::with_capacity(rows.len());
            let mut seen = HashSet::with_capacity(rows.len());
            for row in rows {
                if lanes.contains(&row.slot.number()) && seen.insert(row) {
                    ours.push(row);
                }
            }
            let changed = change(connection, ours.iter().map(numbers).collect())?;
            let changed: HashSet<(i64, i64)> = changed.into_iter().collect();
            let is_changed =
                |row: &RowId| changed.contains(&(row.position, i64::from(row.slot.number())));
            Ok(ours.into_iter().filter(is_changed).collect())
        })
        .await
    }
}
