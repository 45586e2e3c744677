use std::ops::RangeInclusive;
use std::time::Duration;

use diesel::sql_types::{Array, BigInt, Integer, Nullable, SmallInt, Text, Timestamptz};
use diesel_async::AsyncPgConnection;

use super::PostgresStore;
use super::columns::{MessageColumns, MessageRow, timestamp, trusted};
use super::duration::{duration, micros};
use super::enqueue::Columns;
use super::statement::{Statement, statements};
use super::walk::Walk;
#[allow(unused_imports)]
use crate::message::*;
use crate::message::{OrderingKey, Slot};
use crate::store::text::storable;
#[allow(unused_imports)]
use crate::store::*;
use crate::store::{Fence, HeldRow, NewHold, Resource, RetryStore, StoreError};

statements!(RetryTexts {
    hold = "
INSERT INTO {posta}retry (consumer, slot, message_id, message_type, version, ordering_key, headers, content_type, payload,
                          enqueued_at, attempts, due_at, last_error)
SELECT $1, h.slot, h.message_id, h.message_type, h.version, h.ordering_key, h.headers::jsonb, h.content_type, h.payload,
       h.enqueued_at, h.attempts, statement_timestamp() + h.delay * interval '1 microsecond', h.error
FROM unnest($2::smallint[], $3::uuid[], $4::text[], $5::integer[], $6::text[], $7::text[], $8::text[], $9::bytea[],
            $10::timestamptz[], $11::integer[], $12::bigint[], $13::text[])
    WITH ORDINALITY AS h (slot, message_id, message_type, version, ordering_key, headers, content_type, payload,
                          enqueued_at, attempts, delay, error, n)
ORDER BY h.n";

    // Heads whose time has come, slot by slot, by their time.
    due = "
WITH ready AS (
    SELECT r.position
    FROM generate_series($2::integer, $3::integer) AS s (slot)
    CROSS JOIN LATERAL (
        SELECT r.position, r.due_at FROM {posta}retry r
        WHERE r.consumer = $1 AND r.slot = s.slot AND r.due_at <= statement_timestamp()
          AND NOT EXISTS (
              SELECT FROM {posta}retry e
              WHERE e.consumer = r.consumer AND e.slot = r.slot AND e.ordering_key = r.ordering_key
                AND e.position < r.position OFFSET 0)
        ORDER BY r.due_at, r.position LIMIT $4
    ) r
    ORDER BY r.due_at, r.position LIMIT $4
)
SELECT r.position, r.attempts, (extract(epoch FROM statement_timestamp() - r.held_at) * 1000000)::bigint,
       r.message_id, r.message_type, r.version, r.ordering_key, r.headers::text, r.content_type, r.payload, r.enqueued_at
FROM ready JOIN {posta}retry r USING (position)
ORDER BY r.position";

    // Successors that have become the first of their key without being told: their head was deleted
    // by hand, or joined and left while they were not yet committed. They have no time by which to
    // find them; so this walks over the keys that have successors, one step in the index a key,
    // however many successors it has.
    orphaned = "
WITH RECURSIVE waiting AS (
    (SELECT slot, ordering_key, position FROM {posta}retry
     WHERE consumer = $1 AND slot BETWEEN $2 AND $3 AND due_at IS NULL
     ORDER BY slot, ordering_key, position LIMIT 1)
    UNION ALL
    SELECT n.slot, n.ordering_key, n.position
    FROM waiting w CROSS JOIN LATERAL (
        SELECT slot, ordering_key, position FROM {posta}retry
        WHERE consumer = $1 AND slot <= $3 AND due_at IS NULL AND (slot, ordering_key) > (w.slot, w.ordering_key)
        ORDER BY slot, ordering_key, position LIMIT 1
    ) n
), orphan AS (
    SELECT w.position FROM waiting w
    WHERE NOT EXISTS (
        SELECT FROM {posta}retry e
        WHERE e.consumer = $1 AND e.slot = w.slot AND e.ordering_key = w.ordering_key AND e.position < w.position OFFSET 0)
    LIMIT $4
)
SELECT (SELECT count(*) FROM waiting), ARRAY (SELECT position FROM orphan)";

    at = "
SELECT r.position, r.attempts, (extract(epoch FROM statement_timestamp() - r.held_at) * 1000000)::bigint,
       r.message_id, r.message_type, r.version, r.ordering_key, r.headers::text, r.content_type, r.payload, r.enqueued_at
FROM {posta}retry r WHERE r.position = ANY ($1::bigint[])";

    // As `due`, with the first time of each slot in place of the rows.
    next_retry = "
SELECT (extract(epoch FROM min(r.due_at) - statement_timestamp()) * 1000000)::bigint
FROM generate_series($2::integer, $3::integer) AS s (slot)
CROSS JOIN LATERAL (
    SELECT r.due_at FROM {posta}retry r
    WHERE r.consumer = $1 AND r.slot = s.slot AND r.due_at IS NOT NULL
      AND NOT EXISTS (
          SELECT FROM {posta}retry e
          WHERE e.consumer = r.consumer AND e.slot = r.slot AND e.ordering_key = r.ordering_key
            AND e.position < r.position OFFSET 0)
    ORDER BY r.due_at LIMIT 1
) r";

    release = "
DELETE FROM {posta}retry
WHERE position = $1 AND consumer = $2
  AND EXISTS (
      SELECT FROM {posta}lease
      WHERE resource = $3 AND number = $4 AND owner = $5 AND epoch = $6 AND expires_at > statement_timestamp())
RETURNING slot, ordering_key";

    // A statement of its own, so that it sees a successor that was committed while the deletion
    // waited.
    promote = "
UPDATE {posta}retry SET due_at = statement_timestamp()
WHERE position = (
    SELECT position FROM {posta}retry WHERE consumer = $1 AND slot = $2 AND ordering_key = $3
    ORDER BY position LIMIT 1)";

    postpone = "
UPDATE {posta}retry
SET attempts = least(attempts, 2147483646) + 1, last_error = $7,
    due_at = statement_timestamp() + $8 * interval '1 microsecond'
WHERE position = $1 AND consumer = $2
  AND EXISTS (
      SELECT FROM {posta}lease
      WHERE resource = $3 AND number = $4 AND owner = $5 AND epoch = $6 AND expires_at > statement_timestamp())";

    held = "
SELECT count(*), count(DISTINCT ordering_key) FROM {posta}retry WHERE consumer = $1";

    held_of_key = "
SELECT r.position, r.attempts, (extract(epoch FROM statement_timestamp() - r.held_at) * 1000000)::bigint,
       r.message_id, r.message_type, r.version, r.ordering_key, r.headers::text, r.content_type, r.payload, r.enqueued_at
FROM {posta}retry r
WHERE r.consumer = $1 AND r.slot = $2 AND r.ordering_key = $3
ORDER BY r.position LIMIT $4";
});

const READ: &str = "read the retry table";

impl RetryStore for PostgresStore {
    async fn claim(
        &self,
        _connection: &mut AsyncPgConnection,
        _consumer: &str,
        _fence: &Fence,
        _positions: &[i64],
        _member: MemberId,
    ) -> Result<Vec<Claim>, StoreError> {
        todo!()
    }
    async fn claim_alone(
        &self,
        _connection: &mut AsyncPgConnection,
        _consumer: &str,
        _fence: &Fence,
        _position: i64,
        _member: MemberId,
    ) -> Result<Option<Claim>, StoreError> {
        todo!()
    }
    async fn release(
        &self,
        _connection: &mut AsyncPgConnection,
        _consumer: &str,
        _fence: &Fence,
        _positions: &[i64],
    ) -> Result<Vec<i64>, StoreError> {
        todo!()
    }
    async fn park_held(
        &self,
        _connection: &mut AsyncPgConnection,
        _consumer: &str,
        _fence: &Fence,
        _position: i64,
        _letter: LetterId,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    async fn readmit_held(
        &self,
        _connection: &mut AsyncPgConnection,
        _consumer: &str,
        _letter: LetterId,
        _slot: Slot,
        _envelope: &Envelope,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    async fn unpark_held(
        &self,
        _connection: &mut AsyncPgConnection,
        _consumer: &str,
        _letter: LetterId,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    async fn held_count(
        &self,
        _connection: &mut AsyncPgConnection,
        _consumer: &str,
        _key: &OrderingKey,
        _limit: usize,
    ) -> Result<usize, StoreError> {
        todo!()
    }
    async fn hold(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        holds: &[NewHold],
    ) -> Result<(), StoreError> {
        if holds.is_empty() {
            return Ok(());
        }
        let columns = Columns::of(holds.iter().map(|hold| &hold.envelope));
        let slots: Vec<i16> = holds
            .iter()
            .map(|hold| i16::from(hold.slot.number()))
            .collect();
        let enqueued: Vec<_> = holds
            .iter()
            .map(|hold| hold.envelope.enqueued_at.and_then(timestamp))
            .collect();
        let attempts: Vec<i32> = holds
            .iter()
            .map(|hold| i32::try_from(hold.attempts).unwrap_or(i32::MAX))
            .collect();
        let delays: Vec<Option<i64>> = holds.iter().map(|hold| hold.delay.map(micros)).collect();
        let errors: Vec<Option<String>> = holds
            .iter()
            .map(|hold| hold.error.as_deref().map(storable))
            .collect();
        Statement::new(&self.texts().retry.hold)
            .bind::<Text, _>(consumer)
            .bind::<Array<SmallInt>, _>(slots)
            .bind::<Array<diesel::sql_types::Uuid>, _>(columns.ids)
            .bind::<Array<Text>, _>(columns.types)
            .bind::<Array<Integer>, _>(columns.versions)
            .bind::<Array<Nullable<Text>>, _>(columns.keys)
            .bind::<Array<Text>, _>(columns.headers)
            .bind::<Array<Text>, _>(columns.content_types)
            .bind::<Array<diesel::sql_types::Binary>, _>(columns.payloads)
            .bind::<Array<Nullable<Timestamptz>>, _>(enqueued)
            .bind::<Array<Integer>, _>(attempts)
            .bind::<Array<Nullable<BigInt>>, _>(delays)
            .bind::<Array<Nullable<Text>>, _>(errors)
            .run(connection, "put deliveries on hold")
            .await?;
        Ok(())
    }

    async fn due(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        slots: RangeInclusive<u8>,
        limit: usize,
    ) -> Result<Vec<HeldRow>, StoreError> {
        let orphans = match self.walks().begin(consumer, &slots) {
            Err(_) => Vec::new(),
            Ok(walk) => {
                self.orphans(connection, walk, consumer, &slots, limit)
                    .await?
            }
        };
        let mut rows = Vec::new();
        if !orphans.is_empty() {
            let statement =
                Statement::new(&self.texts().retry.at).bind::<Array<BigInt>, _>(orphans);
            rows = held_rows(connection, statement).await?;
        }
        let statement = ranged(&self.texts().retry.due, consumer, &slots)
            .bind::<BigInt, _>(count(limit - rows.len().min(limit)));
        rows.extend(held_rows(connection, statement).await?);
        rows.sort_unstable_by_key(|row| row.position);
        Ok(rows)
    }

    async fn next_retry(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        slots: RangeInclusive<u8>,
    ) -> Result<Option<Duration>, StoreError> {
        let wait: Vec<(Option<i64>,)> = ranged(&self.texts().retry.next_retry, consumer, &slots)
            .returning::<(Nullable<BigInt>,)>()
            .front_rows(connection, READ)
            .await?;
        let wait = wait.into_iter().find_map(|(wait,)| wait).map(duration);
        if wait.is_some_and(|wait| wait.is_zero()) {
            return Ok(wait);
        }
        match self.walks().begin(consumer, &slots) {
            // Whoever waits until then comes back in time for the walk that is not made now.
            Err(later) => Ok(Some(wait.map_or(later, |wait| wait.min(later)))),
            Ok(walk) => {
                let orphans = self.orphans(connection, walk, consumer, &slots, 1).await?;
                Ok(if orphans.is_empty() {
                    wait
                } else {
                    Some(Duration::ZERO)
                })
            }
        }
    }

    async fn postpone(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        fence: &Fence,
        position: i64,
        error: &str,
        delay: Duration,
    ) -> Result<bool, StoreError> {
        let changed = fenced(&self.texts().retry.postpone, consumer, fence, position)
            .bind::<Text, _>(storable(error))
            .bind::<BigInt, _>(micros(delay))
            .run(connection, "postpone a message on hold")
            .await?;
        Ok(changed > 0)
    }

    async fn held(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
    ) -> Result<(u64, u64), StoreError> {
        let (rows, keys): (i64, i64) = Statement::new(&self.texts().retry.held)
            .bind::<Text, _>(consumer)
            .returning::<(BigInt, BigInt)>()
            .row(connection, READ)
            .await?;
        Ok((rows.unsigned_abs(), keys.unsigned_abs()))
    }

    async fn held_of_key(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        key: &OrderingKey,
        limit: usize,
    ) -> Result<Vec<HeldRow>, StoreError> {
        let statement = Statement::new(&self.texts().retry.held_of_key)
            .bind::<Text, _>(consumer)
            .bind::<SmallInt, _>(i16::from(Slot::of_key(key).number()))
            .bind::<Text, _>(key.as_str())
            .bind::<BigInt, _>(count(limit));
        held_rows(connection, statement).await
    }
}

impl PostgresStore {
    /// Walks over the keys that have successors; returns where those are that have lost their head.
    async fn orphans(
        &self,
        connection: &mut AsyncPgConnection,
        walk: Walk<'_>,
        consumer: &str,
        slots: &RangeInclusive<u8>,
        limit: usize,
    ) -> Result<Vec<i64>, StoreError> {
        let walked: Vec<(i64, Vec<i64>)> = ranged(&self.texts().retry.orphaned, consumer, slots)
            .bind::<BigInt, _>(count(limit))
            .returning::<(BigInt, Array<BigInt>)>()
            .front_rows(connection, READ)
            .await?;
        // A SELECT without FROM has one row.
        let (steps, orphans) = walked.into_iter().next().unwrap_or_default();
        walk.end(steps.unsigned_abs());
        Ok(orphans)
    }
}

fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Binds a consumer and a range of slots.
fn ranged<'a>(text: &'a str, consumer: &'a str, slots: &RangeInclusive<u8>) -> Statement<'a> {
    Statement::new(text)
        .bind::<Text, _>(consumer)
        .bind::<SmallInt, _>(i16::from(*slots.start()))
        .bind::<SmallInt, _>(i16::from(*slots.end()))
}

/// The name of the consumer's partitions, if the fence is one of them; else one that nothing is
/// leased by.
fn resource_of(consumer: &str, fence: &Fence) -> String {
    match &fence.resource {
        Resource::Partitions(of) if of == consumer => fence.resource.name(),
        _ => String::new(),
    }
}

/// Binds a row and the fence of its partition.
fn fenced<'a>(text: &'a str, consumer: &'a str, fence: &Fence, position: i64) -> Statement<'a> {
    Statement::new(text)
        .bind::<BigInt, _>(position)
        .bind::<Text, _>(consumer)
        .bind::<Text, _>(resource_of(consumer, fence))
        .bind::<SmallInt, _>(i16::from(fence.grant.number))
        .bind::<diesel::sql_types::Uuid, _>(fence.owner.as_uuid())
        .bind::<BigInt, _>(fence.grant.epoch)
}

async fn held_rows(
    connection: &mut AsyncPgConnection,
    statement: Statement<'_>,
) -> Result<Vec<HeldRow>, StoreError> {
    let rows: Vec<(i64, i32, i64, MessageRow)> = statement
        .returning::<(BigInt, Integer, BigInt, MessageColumns)>()
        .front_rows(connection, READ)
        .await?;
    rows.into_iter()
        .map(|(position, attempts, held_for, message)| {
            Ok(HeldRow {
                failed_at: None,
                letter: None,
                parked: false,
                position,
                envelope: trusted(message, READ)?,
                attempts: u32::try_from(attempts).unwrap_or_default(),
                held_for: duration(held_for),
            })
        })
        .collect()
}
