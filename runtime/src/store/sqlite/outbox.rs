use std::collections::HashSet;
use std::time::Duration;

use diesel::sql_types::{BigInt, Nullable};
use diesel::{QueryResult, SqliteConnection};

use super::connection::on_thread;
use super::{Connection, SqliteStore, lease, pending, row};
use crate::message::Slot;
use crate::store::text::storable;
use crate::store::{
    Backlog, FailedRow, Fence, OutboxRow, OutboxStore, Resource, RowId, StoreError,
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
             FROM {posta}outbox WHERE position = ? AND slot = ?",
        );
        let remove = self.sql("DELETE FROM {posta}outbox WHERE position = ? AND slot = ?");
        let rows = rows.iter().map(|row| (*row, ())).collect();
        self.settle(
            connection,
            "settle dispatched rows",
            fences,
            rows,
            move |connection, row, ()| {
                keep.bind(row.position)
                    .bind(row.slot.number())
                    .execute(connection)?;
                remove
                    .bind(row.position)
                    .bind(row.slot.number())
                    .execute(connection)
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
        let rows = rows
            .iter()
            .map(|row| (row.id, (storable(&row.error), row.hold)))
            .collect();
        self.settle(
            connection,
            "settle failed rows",
            fences,
            rows,
            move |connection, row, (error, hold)| {
                mark.bind(error)
                    .bind(hold)
                    .bind(row.position)
                    .bind(row.slot.number())
                    .execute(connection)
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
        let remove = self.sql("DELETE FROM {posta}outbox WHERE position = ? AND slot = ?");
        let rows = rows.iter().map(|row| (*row, ())).collect();
        self.settle(
            connection,
            "remove rows",
            fences,
            rows,
            move |connection, row, ()| {
                remove
                    .bind(row.position)
                    .bind(row.slot.number())
                    .execute(connection)
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
        // A row whose hold is over is pending, not on hold.
        let next = self.sql(
            "SELECT MIN(held_until) - {now} FROM {posta}outbox
             WHERE held_until > {now} AND slot IN (SELECT value FROM json_each(?))",
        );
        let lanes: Vec<u8> = lanes.iter().map(|lane| lane.number()).collect();
        let lanes = serde_json::to_string(&lanes).expect("numbers have a JSON form");
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
                rows: row::number(rows.statement().one::<BigInt, i64>(connection)?),
                held: row::number(held.statement().one::<BigInt, i64>(connection)?),
                oldest: oldest.map_or(Duration::ZERO, row::duration),
            })
        })
        .await
    }
}

impl SqliteStore {
    /// Changes each row whose lane is held by one of the fences; returns the rows that changed, in the order given.
    async fn settle<T: Send + 'static>(
        &self,
        connection: &mut Connection,
        operation: &'static str,
        fences: &[Fence],
        rows: Vec<(RowId, T)>,
        mut change: impl FnMut(&mut SqliteConnection, RowId, T) -> QueryResult<usize> + Send + 'static,
    ) -> Result<Vec<RowId>, StoreError> {
        let (store, fences) = (self.clone(), fences.to_vec());
        on_thread(connection, operation, move |connection| {
            let mut lanes = HashSet::new();
            for fence in fences
                .iter()
                .filter(|fence| fence.resource == Resource::Lanes)
            {
                if lease::holds(&store, connection, fence)? {
                    lanes.insert(fence.grant.number);
                }
            }
            let mut changed = Vec::with_capacity(rows.len());
            for (row, with) in rows {
                if !lanes.contains(&row.slot.number()) {
                    continue;
                }
                match change(connection, row, with)? {
                    0 => {}
                    1 => changed.push(row),
                    more => return Err(row::corrupt(format!("{more} rows at one position"))),
                }
            }
            Ok(changed)
        })
        .await
    }
}
