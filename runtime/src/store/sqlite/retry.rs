use std::ops::RangeInclusive;
use std::time::Duration;

use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::{QueryResult, SqliteConnection};

use super::connection::on_thread;
use super::row::{self, COLUMNS, ColumnTypes, Columns, bind_envelope, micros_of};
use super::statement::{Sql, Statement};
use super::{Connection, SqliteStore, lease};
use crate::message::OrderingKey;
use crate::store::text::storable;
use crate::store::{Fence, HeldRow, NewHold, RetryStore, StoreError};

/// The first row of each key of a consumer, and every row without a key in some slots: nothing else can be due. Skips from key to key, so that
/// a key's successors, however many, cost nothing. A head without a due time has lost the one before it, and is due.
///
/// Binds the consumer four times, then the slots as JSON.
const HEADS: &str = "WITH RECURSIVE keys (ordering_key) AS (
         SELECT MIN(ordering_key) FROM {posta}retry WHERE consumer = ? AND ordering_key IS NOT NULL
         UNION ALL
         SELECT (SELECT MIN(r.ordering_key) FROM {posta}retry AS r
                 WHERE r.consumer = ? AND r.ordering_key > keys.ordering_key)
         FROM keys WHERE keys.ordering_key IS NOT NULL),
     heads (position) AS (
         SELECT (SELECT MIN(r.position) FROM {posta}retry AS r
                 WHERE r.consumer = ? AND r.ordering_key = keys.ordering_key)
         FROM keys WHERE keys.ordering_key IS NOT NULL
         UNION ALL
         SELECT position FROM {posta}retry
         WHERE consumer = ? AND slot IN (SELECT value FROM json_each(?)) AND due_at IS NOT NULL
           AND ordering_key IS NULL)";

/// A row with its message.
type HeldTypes = (BigInt, BigInt, BigInt, ColumnTypes);

impl RetryStore for SqliteStore {
    async fn hold(
        &self,
        connection: &mut Connection,
        consumer: &str,
        holds: &[NewHold],
    ) -> Result<(), StoreError> {
        let hold = self.sql(
            "INSERT INTO {posta}retry (consumer, slot, message_id, message_type, version, ordering_key, headers,
                 content_type, payload, enqueued_at, attempts, last_error, due_at)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {now} + ?)",
        );
        let (consumer, holds) = (consumer.to_owned(), holds.to_vec());
        on_thread(connection, "hold deliveries", move |connection| {
            for NewHold {
                envelope,
                attempts,
                error,
                delay,
            } in &holds
            {
                let row = hold.bind(consumer.as_str()).bind(envelope.slot().number());
                bind_envelope(row, envelope)
                    .bind(envelope.enqueued_at.map(micros_of))
                    .bind(*attempts)
                    .bind(error.as_deref().map(storable))
                    // NULL for a successor: now plus NULL is NULL.
                    .bind(*delay)
                    .execute(connection)?;
            }
            Ok(())
        })
        .await
    }

    async fn due(
        &self,
        connection: &mut Connection,
        consumer: &str,
        slots: RangeInclusive<u8>,
        limit: usize,
    ) -> Result<Vec<HeldRow>, StoreError> {
        let positions = self.heads(
            "SELECT r.position FROM heads JOIN {posta}retry AS r ON r.position = heads.position
             WHERE r.slot IN (SELECT value FROM json_each(?)) AND (r.due_at IS NULL OR r.due_at <= {now})
             ORDER BY r.position LIMIT ?",
            consumer,
            slots,
        );
        let row = self.held_row("WHERE position = ?");
        on_thread(connection, "read due messages", move |connection| {
            let positions = positions.bind(limit).rows::<BigInt, i64>(connection)?;
            positions
                .into_iter()
                .map(|position| held_row_of(row.bind(position).one::<HeldTypes, _>(connection)?))
                .collect()
        })
        .await
    }

    async fn next_retry(
        &self,
        connection: &mut Connection,
        consumer: &str,
        slots: RangeInclusive<u8>,
    ) -> Result<Option<Duration>, StoreError> {
        let next = self.heads(
            "SELECT MIN(COALESCE(r.due_at, 0)) - {now}
             FROM heads JOIN {posta}retry AS r ON r.position = heads.position
             WHERE r.slot IN (SELECT value FROM json_each(?))",
            consumer,
            slots,
        );
        let micros = on_thread(connection, "read the next retry's time", |connection| {
            next.one::<Nullable<BigInt>, Option<i64>>(connection)
        })
        .await?;
        Ok(micros.map(row::duration))
    }

    async fn release(
        &self,
        connection: &mut Connection,
        consumer: &str,
        fence: &Fence,
        position: i64,
    ) -> Result<bool, StoreError> {
        let remove = self.sql(
            "DELETE FROM {posta}retry WHERE position = ? AND consumer = ? RETURNING ordering_key",
        );
        let promote = self.sql(
            // One that has a time of its own keeps it.
            "UPDATE {posta}retry SET due_at = {now} WHERE due_at IS NULL AND position = (
                 SELECT MIN(position) FROM {posta}retry WHERE consumer = ? AND ordering_key = ?)",
        );
        let (store, consumer, fence) = (self.clone(), consumer.to_owned(), fence.clone());
        on_thread(connection, "release a message", move |connection| {
            if !lease::holds_partition(&store, connection, &consumer, &fence)? {
                return Ok(false);
            }
            let removed = remove
                .bind(position)
                .bind(consumer.as_str())
                .first::<Nullable<Text>, Option<String>>(connection)?;
            if let Some(Some(key)) = &removed {
                promote
                    .bind(consumer)
                    .bind(key.as_str())
                    .execute(connection)?;
            }
            Ok(removed.is_some())
        })
        .await
    }

    async fn postpone(
        &self,
        connection: &mut Connection,
        consumer: &str,
        fence: &Fence,
        position: i64,
        error: &str,
        delay: Duration,
    ) -> Result<bool, StoreError> {
        let postpone = self
            .sql(
                "UPDATE {posta}retry SET attempts = attempts + 1, last_error = ?, due_at = {now} + ?
                 WHERE position = ? AND consumer = ?",
            )
            .bind(storable(error))
            .bind(delay)
            .bind(position)
            .bind(consumer);
        let (store, consumer, fence) = (self.clone(), consumer.to_owned(), fence.clone());
        on_thread(connection, "postpone a message", move |connection| {
            Ok(
                lease::holds_partition(&store, connection, &consumer, &fence)?
                    && postpone.execute(connection)? == 1,
            )
        })
        .await
    }

    async fn held(
        &self,
        connection: &mut Connection,
        consumer: &str,
    ) -> Result<(u64, u64), StoreError> {
        let held = self
            .sql(
                "SELECT COUNT(*), COUNT(DISTINCT ordering_key) FROM {posta}retry WHERE consumer = ?",
            )
            .bind(consumer);
        on_thread(connection, "count held messages", |connection| {
            let (rows, keys) = held.one::<(BigInt, BigInt), (i64, i64)>(connection)?;
            Ok((row::number(rows), row::number(keys)))
        })
        .await
    }

    async fn held_of_key(
        &self,
        connection: &mut Connection,
        consumer: &str,
        key: &OrderingKey,
        limit: usize,
    ) -> Result<Vec<HeldRow>, StoreError> {
        let rows = self
            .held_row("WHERE consumer = ? AND ordering_key = ? ORDER BY position LIMIT ?")
            .bind(consumer)
            .bind(key.as_str())
            .bind(limit);
        on_thread(connection, "read a key's held messages", |connection| {
            held_rows(rows, connection)
        })
        .await
    }
}

impl SqliteStore {
    /// A statement on the heads of a consumer, that binds the slots once more.
    fn heads(&self, select: &str, consumer: &str, slots: RangeInclusive<u8>) -> Statement {
        let slots =
            serde_json::to_string(&slots.collect::<Vec<u8>>()).expect("numbers have a JSON form");
        self.sql(&format!("{HEADS} {select}"))
            .bind(consumer)
            .bind(consumer)
            .bind(consumer)
            .bind(consumer)
            .bind(slots.as_str())
            .bind(slots)
    }

    fn held_row(&self, which: &str) -> Sql {
        self.sql(&format!(
            "SELECT position, attempts, {{now}} - held_at, {COLUMNS} FROM {{posta}}retry {which}"
        ))
    }
}

fn held_rows(rows: Statement, connection: &mut SqliteConnection) -> QueryResult<Vec<HeldRow>> {
    rows.rows::<HeldTypes, _>(connection)?
        .into_iter()
        .map(held_row_of)
        .collect()
}

fn held_row_of(
    (position, attempts, held_for, columns): (i64, i64, i64, Columns),
) -> QueryResult<HeldRow> {
    Ok(HeldRow {
        position,
        attempts: row::count(attempts),
        held_for: row::duration(held_for),
        envelope: row::own_envelope(columns)?,
    })
}
