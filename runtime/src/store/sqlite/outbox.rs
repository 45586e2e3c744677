use std::collections::{HashMap, HashSet};
use std::time::Duration;

use diesel::sql_types::{BigInt, Nullable};
use diesel::{QueryResult, SqliteConnection};

use super::connection::on_thread;
use super::statement::Value;
use super::{Connection, SqliteStore, lease, pending, row};
use crate::message::Slot;
#[allow(unused_imports)]
use crate::message::*;
use crate::store::text::storable;
#[allow(unused_imports)]
use crate::store::*;
use crate::store::{Backlog, FailedRow, Fence, OutboxRow, OutboxStore, RowId, StoreError};

impl OutboxStore for SqliteStore {
    async fn park(
        &self,
        _connection: &mut Connection,
        _fences: &[Fence],
        _rows: &[(RowId, LetterId)],
    ) -> Result<Vec<RowId>, StoreError> {
        todo!()
    }
    async fn readmit(
        &self,
        _connection: &mut Connection,
        _letter: LetterId,
        _envelope: &Envelope,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    async fn unpark(
        &self,
        _connection: &mut Connection,
        _letter: LetterId,
    ) -> Result<bool, StoreError> {
        todo!()
    }
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
                 ON position = row.value ->> 0 AND slot = row.value ->> 1",
        );
        let remove = self.sql(REMOVE);
        self.settle(
            connection,
            "settle dispatched rows",
            fences,
            rows,
            move |connection, rows| {
                let rows = Value::json(&rows);
                keep.bind(rows.clone()).execute(connection)?;
                remove
                    .bind(rows)
                    .rows::<(BigInt, BigInt), (i64, i64)>(connection)
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
            "UPDATE {posta}outbox SET attempts = attempts + 1, last_error = ?, held_until = {now} + ?
             WHERE position = ? AND slot = ?",
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
        let remove = self.sql(REMOVE);
        self.settle(
            connection,
            "remove rows",
            fences,
            rows,
            move |connection, rows| {
                remove
                    .bind(Value::json(&rows))
                    .rows::<(BigInt, BigInt), (i64, i64)>(connection)
            },
        )
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
        // again.
        let next = self.sql(
            "SELECT MIN((SELECT MIN(held_until) FROM {posta}outbox WHERE slot = lane.value AND held_until > {now})) - {now}
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
        let rows = self.sql("SELECT COUNT(*) FROM {posta}outbox");
        let held = self.sql("SELECT COUNT(*) FROM {posta}outbox WHERE held_until IS NOT NULL");
        // The first row is the oldest: one transaction writes at a time.
        let oldest =
            self.sql("SELECT {now} - enqueued_at FROM {posta}outbox ORDER BY position LIMIT 1");
        on_thread(connection, "measure the backlog", move |connection| {
            let oldest = oldest.statement().first::<BigInt, i64>(connection)?;
            Ok(Backlog {
                parked: 0,
                rows: row::number(rows.statement().one::<BigInt, i64>(connection)?),
                held: row::number(held.statement().one::<BigInt, i64>(connection)?),
                oldest: oldest.map_or(Duration::ZERO, row::duration),
            })
        })
        .await
    }
}

/// Takes rows (position and slot) out of the outbox; returns those that were there.
const REMOVE: &str = "DELETE FROM {posta}outbox
     WHERE (position, slot) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?)) RETURNING position, slot";

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
