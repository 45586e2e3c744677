use std::ops::RangeInclusive;
use std::time::Duration;

use diesel::sql_types::{BigInt, Nullable};
use diesel::{QueryResult, SqliteConnection};

use super::connection::on_thread;
use super::row;
use super::statement::{Statement, Value};
use super::{Connection, SqliteStore, claim, held, lease, place, recall, release};
use crate::message::{Envelope, OrderingKey, Slot};
use crate::store::text::storable;
use crate::store::{
    Claim, Fence, HeldRow, LetterId, MemberId, NewHold, Postponement, Recall, RetryStore,
    StoreError,
};

/// The rows that are due. Heads, and rows without a key, are found by their time. A key's
/// successors have none; one that has become the first of its key without being told (its head was
/// deleted by hand) is found by a walk over the keys that have successors: one step a key, however
/// many successors it has. The place of a dead letter is no such successor, and its time never
/// comes.
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

/// The first time of a head, or of a row without a key, over all slots; places of dead letters have
/// none.
///
/// Binds the consumer and the slots (as JSON).
const NEXT: &str = "SELECT MIN((
         SELECT r.due_at FROM {posta}retry AS r
         WHERE r.consumer = ? AND r.slot = s.value AND r.due_at < {never}
           AND (r.ordering_key IS NULL OR NOT EXISTS (
               SELECT 1 FROM {posta}retry AS e
               WHERE e.consumer = r.consumer AND e.ordering_key = r.ordering_key AND e.position < r.position))
         ORDER BY r.due_at LIMIT 1)) - {now}
     FROM json_each(?) AS s";

impl RetryStore for SqliteStore {
    async fn hold(
        &self,
        connection: &mut Connection,
        consumer: &str,
        holds: &[NewHold],
    ) -> Result<(), StoreError> {
        let hold = self.hold_row();
        let (consumer, holds) = (consumer.to_owned(), holds.to_vec());
        on_thread(connection, "hold deliveries", move |connection| {
            holds.into_iter().try_for_each(|new| {
                held::bind(&hold, &consumer, new, None)
                    .execute(connection)
                    .map(|_| ())
            })
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
            let mut rows = Vec::with_capacity(positions.len());
            for position in positions {
                rows.extend(held::read(row.bind(position), connection)?);
            }
            Ok(rows)
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

    async fn claim(
        &self,
        connection: &mut Connection,
        consumer: &str,
        fence: &Fence,
        positions: &[i64],
        member: MemberId,
    ) -> Result<Vec<Claim>, StoreError> {
        let positions = positions.to_vec();
        self.fenced(
            connection,
            "claim messages",
            consumer,
            fence,
            move |store, connection, consumer| {
                claim::together(store, connection, consumer, &positions, member)
            },
        )
        .await
    }

    async fn claim_alone(
        &self,
        connection: &mut Connection,
        consumer: &str,
        fence: &Fence,
        position: i64,
        member: MemberId,
    ) -> Result<Option<Claim>, StoreError> {
        self.fenced(
            connection,
            "claim a message",
            consumer,
            fence,
            move |store, connection, consumer| {
                claim::alone(store, connection, consumer, position, member)
            },
        )
        .await
    }

    async fn unclaim(
        &self,
        connection: &mut Connection,
        consumer: &str,
        slots: RangeInclusive<u8>,
        member: MemberId,
    ) -> Result<(), StoreError> {
        let unclaim = self
            .sql(
                "UPDATE {posta}retry SET claimed_by = NULL
                 WHERE consumer = ? AND slot IN (SELECT value FROM json_each(?)) AND claimed_by = ?",
            )
            .bind(consumer)
            .bind(numbers(slots))
            .bind(member.as_uuid());
        on_thread(connection, "end claims", |connection| {
            unclaim.execute(connection).map(|_| ())
        })
        .await
    }

    async fn release(
        &self,
        connection: &mut Connection,
        consumer: &str,
        fence: &Fence,
        positions: &[i64],
    ) -> Result<Vec<i64>, StoreError> {
        let positions = positions.to_vec();
        self.fenced(
            connection,
            "release messages",
            consumer,
            fence,
            move |store, connection, consumer| {
                release::release(store, connection, consumer, &positions)
            },
        )
        .await
    }

    async fn park_held(
        &self,
        connection: &mut Connection,
        consumer: &str,
        fence: &Fence,
        position: i64,
        letter: LetterId,
    ) -> Result<bool, StoreError> {
        self.fenced(
            connection,
            "park a message",
            consumer,
            fence,
            move |store, connection, consumer| {
                place::park_held(store, connection, consumer, position, letter)
            },
        )
        .await
    }

    async fn readmit_held(
        &self,
        connection: &mut Connection,
        consumer: &str,
        letter: LetterId,
        slot: Slot,
        envelope: &Envelope,
    ) -> Result<bool, StoreError> {
        let (store, consumer, envelope) = (self.clone(), consumer.to_owned(), envelope.clone());
        on_thread(connection, "put a message back", move |connection| {
            place::readmit_held(&store, connection, &consumer, letter, slot, envelope)
        })
        .await
    }

    async fn unpark_held(
        &self,
        connection: &mut Connection,
        consumer: &str,
        letter: LetterId,
    ) -> Result<bool, StoreError> {
        let (store, consumer) = (self.clone(), consumer.to_owned());
        on_thread(connection, "let a parked key go on", move |connection| {
            release::unpark(&store, connection, &consumer, letter)
        })
        .await
    }

    async fn recall_held(
        &self,
        connection: &mut Connection,
        consumer: &str,
        letter: LetterId,
        place: bool,
    ) -> Result<Recall, StoreError> {
        let (store, consumer) = (self.clone(), consumer.to_owned());
        on_thread(connection, "take a message back", move |connection| {
            recall::held(&store, connection, &consumer, letter, place)
        })
        .await
    }

    async fn postpone(
        &self,
        connection: &mut Connection,
        consumer: &str,
        fence: &Fence,
        position: i64,
        Postponement {
            tried,
            error,
            delay,
        }: Postponement<'_>,
    ) -> Result<bool, StoreError> {
        let postpone = self
            .sql(
                "UPDATE {posta}retry SET attempts = attempts + ?, last_error = ?, due_at = {now} + ?, claimed_by = NULL, deaths = 0,
                     failed_at = COALESCE(failed_at, {now})
                 WHERE position = ? AND consumer = ? AND parked = 0",
            )
            .bind(i64::from(tried))
            .bind(storable(error))
            .bind(delay)
            .bind(position)
            .bind(consumer);
        self.fenced(
            connection,
            "postpone a message",
            consumer,
            fence,
            move |_, connection, _| Ok(postpone.execute(connection)? == 1),
        )
        .await
    }

    async fn held(
        &self,
        connection: &mut Connection,
        consumer: &str,
    ) -> Result<(u64, u64), StoreError> {
        let held = self
            .sql(
                "SELECT COUNT(*) FILTER (WHERE parked = 0), COUNT(DISTINCT ordering_key)
                 FROM {posta}retry WHERE consumer = ?",
            )
            .bind(consumer);
        on_thread(connection, "count held messages", |connection| {
            let (rows, keys) = held.one::<(BigInt, BigInt), (i64, i64)>(connection)?;
            Ok((row::number(rows), row::number(keys)))
        })
        .await
    }

    async fn held_count(
        &self,
        connection: &mut Connection,
        consumer: &str,
        key: &OrderingKey,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let count = self
            .sql(
                "SELECT COUNT(*) FROM (
                     SELECT 1 FROM {posta}retry WHERE consumer = ? AND ordering_key = ? AND parked = 0 LIMIT ?)",
            )
            .bind(consumer)
            .bind(key.as_str())
            .bind(limit);
        on_thread(connection, "count a key's held messages", |connection| {
            let count = count.one::<BigInt, i64>(connection)?;
            Ok(usize::try_from(count).unwrap_or(usize::MAX))
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
            held::read(rows, connection)
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

    /// Changes a consumer's rows if the fence holds its partition; changes nothing otherwise.
    async fn fenced<T: Default + Send + 'static>(
        &self,
        connection: &mut Connection,
        operation: &'static str,
        consumer: &str,
        fence: &Fence,
        change: impl FnOnce(&SqliteStore, &mut SqliteConnection, &str) -> QueryResult<T>
        + Send
        + 'static,
    ) -> Result<T, StoreError> {
        let (store, consumer, fence) = (self.clone(), consumer.to_owned(), fence.clone());
        on_thread(connection, operation, move |connection| {
            if lease::holds_partition(&store, connection, &consumer, &fence)? {
                change(&store, connection, &consumer)
            } else {
                Ok(T::default())
            }
        })
        .await
    }
}

fn numbers(slots: RangeInclusive<u8>) -> Value {
    Value::json(&slots.collect::<Vec<u8>>())
}
