use std::ops::RangeInclusive;
use std::time::Duration;

use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::{QueryResult, SqliteConnection};

use super::connection::on_thread;
use super::row;
use super::statement::Value;
use super::{Connection, SqliteStore, claim, held, lease, place, recall, release};
use crate::message::{Envelope, OrderingKey, Slot};
use crate::store::text::storable;
use crate::store::walk::{Part, Walk};
use crate::store::{
    Claim, Fence, HeldRow, LetterId, MemberId, NewHold, Postponement, Recall, RetryStore,
    StoreError,
};

/// Heads, and rows without a key, whose time has come, slot by slot, by their time. A parked row's
/// never comes, and what is behind it is no head.
///
/// Binds the slots (as JSON), the consumer, the limit, and the limit again.
const DUE: &str = "SELECT r.position FROM json_each(?) AS s CROSS JOIN {posta}retry AS r ON r.position IN (
         SELECT h.position FROM {posta}retry AS h
         WHERE h.consumer = ? AND h.slot = s.value AND h.due_at <= {now}
           AND (h.ordering_key IS NULL OR NOT EXISTS (
               SELECT 1 FROM {posta}retry AS e
               WHERE e.consumer = h.consumer AND e.ordering_key = h.ordering_key AND e.position < h.position))
         ORDER BY h.due_at, h.position LIMIT ?)
     ORDER BY r.due_at, r.position LIMIT ?";

/// How many keys have successors, and where those are (as JSON) that have become the first of
/// their key without being told: their head was deleted by hand. They have no time by which to find
/// them; so this walks over the keys that have successors: one step a key, however many successors
/// it has.
///
/// Binds the consumer, the slots (as JSON), and the consumer twice.
const ORPHANED: &str = "WITH RECURSIVE waiting (slot, ordering_key) AS (
         SELECT s.value, (
             SELECT MIN(ordering_key) FROM {posta}retry
             WHERE consumer = ? AND slot = s.value AND due_at IS NULL)
         FROM json_each(?) AS s
         UNION ALL
         SELECT w.slot, (
             SELECT MIN(ordering_key) FROM {posta}retry
             WHERE consumer = ? AND slot = w.slot AND due_at IS NULL AND ordering_key > w.ordering_key)
         FROM waiting AS w WHERE w.ordering_key IS NOT NULL)
     SELECT COUNT(*), json_group_array(orphan) FILTER (WHERE orphan IS NOT NULL)
     FROM (
         SELECT (
             SELECT CASE WHEN f.due_at IS NULL THEN f.position END FROM {posta}retry AS f
             WHERE f.consumer = ? AND f.ordering_key = w.ordering_key ORDER BY f.position LIMIT 1) AS orphan
         FROM waiting AS w WHERE w.ordering_key IS NOT NULL)";

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
        let (store, consumer) = (self.clone(), consumer.to_owned());
        on_thread(connection, "read due messages", move |connection| {
            let mut positions = match store.walks().begin(part(&consumer, &slots)) {
                Err(_) => Vec::new(),
                Ok(walk) => orphans(&store, connection, walk, &consumer, &slots)?,
            };
            positions.truncate(limit);
            let room = limit - positions.len();
            let due = store
                .sql(DUE)
                .bind(numbers(slots))
                .bind(consumer)
                .bind(room)
                .bind(room);
            positions.extend(due.rows::<BigInt, i64>(connection)?);
            positions.sort_unstable();
            let row = store.held_row("WHERE position = ?");
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
        let (store, consumer) = (self.clone(), consumer.to_owned());
        on_thread(
            connection,
            "read the next retry's time",
            move |connection| {
                let micros = store
                    .sql(NEXT)
                    .bind(consumer.as_str())
                    .bind(numbers(slots.clone()))
                    .one::<Nullable<BigInt>, Option<i64>>(connection)?;
                let wait = micros.map(row::duration);
                if wait.is_some_and(|wait| wait.is_zero()) {
                    return Ok(wait);
                }
                match store.walks().begin(part(&consumer, &slots)) {
                    // Whoever waits until then comes back in time for the walk that is not made now.
                    Err(later) => Ok(Some(wait.map_or(later, |wait| wait.min(later)))),
                    Ok(walk) => {
                        let orphans = orphans(&store, connection, walk, &consumer, &slots)?;
                        Ok(if orphans.is_empty() {
                            wait
                        } else {
                            Some(Duration::ZERO)
                        })
                    }
                }
            },
        )
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
        Postponement { error, delay }: Postponement<'_>,
    ) -> Result<bool, StoreError> {
        let postpone = self
            .sql(match error {
                Some(_) => {
                    "UPDATE {posta}retry SET attempts = attempts + 1, last_error = ?, due_at = {now} + ?,
                         failed_at = COALESCE(failed_at, {now}), unhandled_since = NULL, claimed_by = NULL, deaths = 0
                     WHERE position = ? AND consumer = ? AND parked = 0"
                }
                None => {
                    "UPDATE {posta}retry SET last_error = COALESCE(?, last_error), due_at = {now} + ?,
                         unhandled_since = COALESCE(unhandled_since, {now}), claimed_by = NULL, deaths = 0
                     WHERE position = ? AND consumer = ? AND parked = 0"
                }
            })
            .bind(error.map(storable))
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

/// Walks over the keys that have successors; returns where those are that have lost their head.
fn orphans(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    walk: Walk<'_>,
    consumer: &str,
    slots: &RangeInclusive<u8>,
) -> QueryResult<Vec<i64>> {
    let (steps, orphans) = store
        .sql(ORPHANED)
        .bind(consumer)
        .bind(numbers(slots.clone()))
        .bind(consumer)
        .bind(consumer)
        .one::<(BigInt, Text), (i64, String)>(connection)?;
    let orphans: Vec<i64> = serde_json::from_str(&orphans)
        .map_err(|error| row::corrupt(format!("a list of positions: {error}")))?;
    walk.end(row::number(steps), orphans.len());
    Ok(orphans)
}

fn part(consumer: &str, slots: &RangeInclusive<u8>) -> Part {
    Part::Retry(consumer.to_owned(), slots.clone())
}

fn numbers(slots: RangeInclusive<u8>) -> Value {
    Value::json(&slots.collect::<Vec<u8>>())
}
