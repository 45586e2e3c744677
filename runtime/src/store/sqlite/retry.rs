use std::ops::RangeInclusive;
use std::time::Duration;

use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::{QueryResult, SqliteConnection};

use super::connection::on_thread;
use super::row::{self, COLUMNS, ColumnTypes, Columns, bind_envelope, micros_of};
use super::statement::{Sql, Statement, Value};
use super::{Connection, SqliteStore, lease};
use crate::message::OrderingKey;
#[allow(unused_imports)]
use crate::message::*;
use crate::store::text::storable;
#[allow(unused_imports)]
use crate::store::*;
use crate::store::{Fence, HeldRow, NewHold, RetryStore, StoreError};

/// The rows that are due. Heads, and rows without a key, are found by their time. A key's
/// successors have none; one that has become the first of its key without being told (its head was
/// deleted by hand) is found by a walk over the keys that have successors: one step a key, however
/// many successors it has.
///
/// Binds the consumer, the slots (as JSON), the consumer twice, the slots, the consumer, and the
/// limit.
const DUE: &str = "WITH RECURSIVE waiting (slot, ordering_key) AS (
         SELECT s.value, (
             SELECT MIN(ordering_key) FROM {posta}retry
             WHERE consumer = ? AND slot = s.value AND due_at IS NULL)
         FROM json_each(?) AS s
         UNION ALL
         SELECT w.slot, (
             SELECT MIN(ordering_key) FROM {posta}retry
             WHERE consumer = ? AND slot = w.slot AND due_at IS NULL AND ordering_key > w.ordering_key)
         FROM waiting AS w WHERE w.ordering_key IS NOT NULL)
     SELECT r.position FROM {posta}retry AS r
     WHERE r.consumer = ? AND r.slot IN (SELECT value FROM json_each(?)) AND r.due_at <= {now}
       AND (r.ordering_key IS NULL OR NOT EXISTS (
           SELECT 1 FROM {posta}retry AS e
           WHERE e.consumer = r.consumer AND e.ordering_key = r.ordering_key AND e.position < r.position))
     UNION ALL
     SELECT r.position FROM waiting AS w CROSS JOIN {posta}retry AS r ON r.position = (
         SELECT MIN(f.position) FROM {posta}retry AS f WHERE f.consumer = ? AND f.ordering_key = w.ordering_key)
     WHERE r.due_at IS NULL
     ORDER BY 1 LIMIT ?";

/// The first time of a head, or of a row without a key, over all slots.
///
/// Binds the consumer and the slots (as JSON).
const NEXT: &str = "SELECT MIN((
         SELECT r.due_at FROM {posta}retry AS r
         WHERE r.consumer = ? AND r.slot = s.value AND r.due_at IS NOT NULL
           AND (r.ordering_key IS NULL OR NOT EXISTS (
               SELECT 1 FROM {posta}retry AS e
               WHERE e.consumer = r.consumer AND e.ordering_key = r.ordering_key AND e.position < r.position))
         ORDER BY r.due_at LIMIT 1)) - {now}
     FROM json_each(?) AS s";

/// A row with its message.
type HeldTypes = (BigInt, BigInt, BigInt, ColumnTypes);

impl RetryStore for SqliteStore {
    async fn claim(
        &self,
        _connection: &mut Connection,
        _consumer: &str,
        _fence: &Fence,
        _positions: &[i64],
        _member: MemberId,
    ) -> Result<Vec<Claim>, StoreError> {
        todo!()
    }
    async fn claim_alone(
        &self,
        _connection: &mut Connection,
        _consumer: &str,
        _fence: &Fence,
        _position: i64,
        _member: MemberId,
    ) -> Result<Option<Claim>, StoreError> {
        todo!()
    }
    async fn release(
        &self,
        _connection: &mut Connection,
        _consumer: &str,
        _fence: &Fence,
        _positions: &[i64],
    ) -> Result<Vec<i64>, StoreError> {
        todo!()
    }
    async fn park_held(
        &self,
        _connection: &mut Connection,
        _consumer: &str,
        _fence: &Fence,
        _position: i64,
        _letter: LetterId,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    async fn readmit_held(
        &self,
        _connection: &mut Connection,
        _consumer: &str,
        _letter: LetterId,
        _slot: Slot,
        _envelope: &Envelope,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    async fn unpark_held(
        &self,
        _connection: &mut Connection,
        _consumer: &str,
        _letter: LetterId,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    async fn held_count(
        &self,
        _connection: &mut Connection,
        _consumer: &str,
        _key: &OrderingKey,
        _limit: usize,
    ) -> Result<usize, StoreError> {
        todo!()
    }
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
                slot,
                attempts,
                error,
                delay,
                parked: _,
            } in &holds
            {
                let row = hold.bind(consumer.as_str()).bind(slot.number());
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
        let due = self.due_positions(consumer, slots).bind(limit);
        let row = self.held_row("WHERE position = ?");
        on_thread(connection, "read due messages", move |connection| {
            let positions = due.rows::<BigInt, i64>(connection)?;
            let row_at =
                |position| held_row_of(row.bind(position).one::<HeldTypes, _>(connection)?);
            positions.into_iter().map(row_at).collect()
        })
        .await
    }

    async fn next_retry(
        &self,
        connection: &mut Connection,
        consumer: &str,
        slots: RangeInclusive<u8>,
    ) -> Result<Option<Duration>, StoreError> {
        let due = self.due_positions(consumer, slots.clone()).bind(1_i64);
        let next = self.sql(NEXT).bind(consumer).bind(numbers(slots));
        on_thread(connection, "read the next retry's time", |connection| {
            if due.first::<BigInt, i64>(connection)?.is_some() {
                return Ok(Some(Duration::ZERO));
            }
            let micros = next.one::<Nullable<BigInt>, Option<i64>>(connection)?;
            Ok(micros.map(row::duration))
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
    /// The positions of what is due; the limit is still to be bound.
    fn due_positions(&self, consumer: &str, slots: RangeInclusive<u8>) -> Statement {
        let slots = numbers(slots);
        self.sql(DUE)
            .bind(consumer)
            .bind(slots.clone())
            .bind(consumer)
            .bind(consumer)
            .bind(slots)
            .bind(consumer)
    }

    fn held_row(&self, which: &str) -> Sql {
        self.sql(&format!(
            "SELECT position, attempts, {{now}} - held_at, {COLUMNS} FROM {{posta}}retry {which}"
        ))
    }
}

fn numbers(slots: RangeInclusive<u8>) -> Value {
    Value::json(&slots.collect::<Vec<u8>>())
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
        failed_at: None,
        letter: None,
        parked: false,
        position,
        attempts: row::count(attempts),
        held_for: row::duration(held_for),
        envelope: row::own_envelope(columns)?,
    })
}
