use std::ops::RangeInclusive;

use diesel::sql_types::{Array, BigInt, SmallInt, Text};
use diesel_async::AsyncPgConnection;

use super::PostgresStore;
use super::columns::{MessageColumns, MessageRow, parsed};
use super::outbox::row_id;
use super::statement::{Statement, statements};
use crate::message::MessageType;
use crate::store::{QueueRow, QueueStore, RowId, StoreError};

statements!(QueueTexts {
    subscribe = "
INSERT INTO {posta}subscription (message_type, consumer)
SELECT t, $1 FROM unnest($2::text[]) AS t ORDER BY t
ON CONFLICT DO NOTHING";

    // One statement: which rows somebody takes, and their copies. The numbers of the queue are
    // drawn after the sort.
    route = "
WITH taken AS MATERIALIZED (
    SELECT r.n, s.consumer, o.*
    FROM unnest($1::smallint[], $2::bigint[]) WITH ORDINALITY AS r (slot, position, n)
    JOIN {posta}outbox o ON o.slot = r.slot AND o.position = r.position
    JOIN {posta}subscription s ON s.message_type = o.message_type
), copied AS (
    INSERT INTO {posta}queue (consumer, slot, message_id, message_type, version, ordering_key, headers, content_type, payload,
                              enqueued_at)
    SELECT consumer, slot, message_id, message_type, version, ordering_key, headers, content_type, payload, enqueued_at
    FROM taken ORDER BY n, consumer
)
SELECT slot, position FROM taken GROUP BY slot, position ORDER BY min(n)";

    // Each slot gives its first positions, by index; the first of all of them are the queue's
    // first.
    queued = "
WITH first AS (
    SELECT q.position
    FROM generate_series($2::integer, $3::integer) AS s (slot)
    CROSS JOIN LATERAL (
        SELECT q.position FROM {posta}queue q
        WHERE q.consumer = $1 AND q.slot = s.slot
        ORDER BY q.position LIMIT $4
    ) q
    ORDER BY q.position LIMIT $4
)
SELECT q.position, q.message_id, q.message_type, q.version, q.ordering_key, q.headers::text, q.content_type, q.payload,
       q.enqueued_at
FROM first JOIN {posta}queue q USING (position)
ORDER BY q.position";

    unqueue = "
DELETE FROM {posta}queue WHERE position = ANY ($1::bigint[])";

    queue_depth = "
SELECT count(*) FROM {posta}queue WHERE consumer = $1 AND slot BETWEEN $2 AND $3";
});

impl QueueStore for PostgresStore {
    async fn subscribe(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        types: &[MessageType],
    ) -> Result<(), StoreError> {
        const OPERATION: &str = "subscribe a consumer";
        let types: Vec<&str> = types.iter().map(MessageType::as_str).collect();
        Statement::new(&self.texts().queue.subscribe)
            .bind::<Text, _>(consumer)
            .bind::<Array<Text>, _>(types)
            .run(connection, OPERATION)
            .await?;
        Ok(())
    }

    async fn route(
        &self,
        connection: &mut AsyncPgConnection,
        rows: &[RowId],
    ) -> Result<Vec<RowId>, StoreError> {
        const OPERATION: &str = "route rows to their queues";
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let slots: Vec<i16> = rows
            .iter()
            .map(|row| i16::from(row.slot.number()))
            .collect();
        let positions: Vec<i64> = rows.iter().map(|row| row.position).collect();
        let taken: Vec<(i16, i64)> = Statement::new(&self.texts().queue.route)
            .bind::<Array<SmallInt>, _>(slots)
            .bind::<Array<BigInt>, _>(positions)
            .returning::<(SmallInt, BigInt)>()
            .rows(connection, OPERATION)
            .await?;
        taken
            .into_iter()
            .map(|row| row_id(row, OPERATION))
            .collect()
    }

    async fn queued(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        slots: RangeInclusive<u8>,
        limit: usize,
    ) -> Result<Vec<QueueRow>, StoreError> {
        let rows: Vec<(i64, MessageRow)> = Statement::new(&self.texts().queue.queued)
            .bind::<Text, _>(consumer)
            .bind::<SmallInt, _>(i16::from(*slots.start()))
            .bind::<SmallInt, _>(i16::from(*slots.end()))
            .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX))
            .returning::<(BigInt, MessageColumns)>()
            .front_rows(connection, "read a queue")
            .await?;
        let row = |(position, message)| QueueRow {
            position,
            message: parsed(message),
        };
        Ok(rows.into_iter().map(row).collect())
    }

    async fn unqueue(
        &self,
        connection: &mut AsyncPgConnection,
        positions: &[i64],
    ) -> Result<usize, StoreError> {
        if positions.is_empty() {
            return Ok(0);
        }
        Statement::new(&self.texts().queue.unqueue)
            .bind::<Array<BigInt>, _>(positions)
            .run(connection, "take messages out of a queue")
            .await
    }

    async fn queue_depth(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        slots: RangeInclusive<u8>,
    ) -> Result<u64, StoreError> {
        let (depth,): (i64,) = Statement::new(&self.texts().queue.queue_depth)
            .bind::<Text, _>(consumer)
            .bind::<SmallInt, _>(i16::from(*slots.start()))
            .bind::<SmallInt, _>(i16::from(*slots.end()))
            .returning::<(BigInt,)>()
            .row(connection, "count a queue")
            .await?;
        Ok(depth.unsigned_abs())
    }
}
