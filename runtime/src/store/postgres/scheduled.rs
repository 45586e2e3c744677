use std::time::Duration;

use diesel::data_types::PgTimestamp;
use diesel::sql_types::{
    Array, BigInt, Binary, Integer, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid,
};
use diesel_async::AsyncPgConnection;

use super::PostgresStore;
use super::columns::bound;
use super::duration::{duration, micros};
use super::enqueue::Columns;
use super::outbox::{fenced, numbers, owned};
use super::statement::{Statement, qualified, statements};
use crate::message::{MessageId, Slot};
use crate::store::{Due, Fence, NewScheduled, ScheduleStore, StoreError, Tables};

pub(crate) const INSERT: &str = "schedule messages";
pub(crate) const CANCEL: &str = "cancel a scheduled message";

/// One insert for any number of messages, in the order given. A time that has passed is one like
/// any other.
const INSERT_SQL: &str = "
INSERT INTO {posta}scheduled
    (message_id, message_type, version, ordering_key, headers, content_type, payload, due_at)
SELECT m.message_id, m.message_type, m.version, m.ordering_key, m.headers::jsonb, m.content_type, m.payload,
       coalesce(m.due_at, statement_timestamp() + m.delay * interval '1 microsecond')
FROM unnest($1::uuid[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::timestamptz[],
            $9::bigint[])
    WITH ORDINALITY AS m (message_id, message_type, version, ordering_key, headers, content_type, payload, due_at, delay, n)
ORDER BY m.n";

/// Whoever moves the message to the outbox at the same time is waited for, if it is being moved
/// already; then it is gone.
const CANCEL_SQL: &str = "
DELETE FROM {posta}scheduled WHERE message_id = $1";

statements!(ScheduleTexts {
    // Each lane gives its first messages, by index; the first of all of them are moved. The numbers
    // of the outbox are drawn after the sort. A message whose id waits in the outbox already only
    // leaves `scheduled`: it must not stop its lane.
    //
    // One that a transaction of somebody's is about to cancel is not waited for, since that may take
    // as long as it likes; it is left, and with it the others of its key, so that none overtakes it
    // if it is not cancelled after all.
    enqueue_due = concat!(owned!("$3", "$4", "$5"), ", due AS MATERIALIZED (
    SELECT s.position, s.ordering_key
    FROM (SELECT DISTINCT slot FROM unnest($1::smallint[]) AS l (slot) JOIN owned ON owned.number = l.slot) AS lane
    CROSS JOIN LATERAL (
        SELECT s.position, s.due_at, s.ordering_key FROM {posta}scheduled s
        WHERE s.slot = lane.slot AND s.due_at <= statement_timestamp()
        ORDER BY s.due_at, s.position LIMIT $2
    ) s
    ORDER BY s.due_at, s.position LIMIT $2
), free AS MATERIALIZED (
    SELECT s.position FROM {posta}scheduled s
    WHERE s.position IN (SELECT position FROM due)
    FOR UPDATE SKIP LOCKED
), waiting AS MATERIALIZED (
    SELECT ordering_key FROM due
    WHERE ordering_key IS NOT NULL AND position NOT IN (SELECT position FROM free)
), gone AS (
    DELETE FROM {posta}scheduled s USING free
    WHERE s.position = free.position
      AND (s.ordering_key IS NULL OR s.ordering_key NOT IN (SELECT ordering_key FROM waiting))
    RETURNING s.*
), enqueued AS (
    INSERT INTO {posta}outbox (message_id, message_type, version, ordering_key, headers, content_type, payload)
    SELECT message_id, message_type, version, ordering_key, headers, content_type, payload
    FROM gone ORDER BY due_at, position
    ON CONFLICT (message_id) DO NOTHING
)
SELECT count(*) FROM gone");

    next_scheduled = "
SELECT (extract(epoch FROM min(s.due_at) - statement_timestamp()) * 1000000)::bigint
FROM unnest($1::smallint[]) AS lane (slot)
CROSS JOIN LATERAL (
    SELECT due_at FROM {posta}scheduled WHERE slot = lane.slot ORDER BY due_at LIMIT 1
) s";

    scheduled = "
SELECT count(*) FROM {posta}scheduled";
});

impl ScheduleStore for PostgresStore {
    async fn enqueue_due(
        &self,
        connection: &mut AsyncPgConnection,
        fences: &[Fence],
        lanes: &[Slot],
        limit: usize,
    ) -> Result<usize, StoreError> {
        if lanes.is_empty() || limit == 0 {
            return Ok(0);
        }
        let statement = Statement::new(&self.texts().scheduled.enqueue_due)
            .bind::<Array<SmallInt>, _>(numbers(lanes))
            .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX));
        let moved: Vec<(i64,)> = fenced(statement, fences)
            .returning::<(BigInt,)>()
            .front_rows(connection, "enqueue scheduled messages that are due")
            .await?;
        let moved = moved.first().map_or(0, |(moved,)| *moved);
        Ok(usize::try_from(moved).unwrap_or_default())
    }

    async fn next_scheduled(
        &self,
        connection: &mut AsyncPgConnection,
        lanes: &[Slot],
    ) -> Result<Option<Duration>, StoreError> {
        let (wait,): (Option<i64>,) = Statement::new(&self.texts().scheduled.next_scheduled)
            .bind::<Array<SmallInt>, _>(numbers(lanes))
            .returning::<(Nullable<BigInt>,)>()
            .row(connection, "read when a scheduled message is due")
            .await?;
        Ok(wait.map(duration))
    }

    async fn scheduled(&self, connection: &mut AsyncPgConnection) -> Result<u64, StoreError> {
        let (count,): (i64,) = Statement::new(&self.texts().scheduled.scheduled)
            .returning::<(BigInt,)>()
            .row(connection, "count scheduled messages")
            .await?;
        Ok(count.unsigned_abs())
    }
}

/// The insert for these tables.
pub(crate) fn insert_sql(tables: &Tables) -> String {
    qualified(tables, INSERT_SQL)
}

/// The insert with messages bound: the same on every kind of connection.
pub(crate) fn insert<'a>(sql: &'a str, scheduled: &'a [NewScheduled]) -> Statement<'a> {
    let columns = Columns::of(scheduled.iter().map(|scheduled| &scheduled.envelope));
    let (times, delays): (Vec<Option<PgTimestamp>>, Vec<Option<i64>>) = scheduled
        .iter()
        .map(|scheduled| match scheduled.due {
            Due::At(time) => (Some(bound(time)), None),
            Due::After(delay) => (None, Some(micros(delay))),
        })
        .unzip();
    Statement::new(sql)
        .bind::<Array<SqlUuid>, _>(columns.ids)
        .bind::<Array<Text>, _>(columns.types)
        .bind::<Array<Integer>, _>(columns.versions)
        .bind::<Array<Nullable<Text>>, _>(columns.keys)
        .bind::<Array<Text>, _>(columns.headers)
        .bind::<Array<Text>, _>(columns.content_types)
        .bind::<Array<Binary>, _>(columns.payloads)
        .bind::<Array<Nullable<Timestamptz>>, _>(times)
        .bind::<Array<Nullable<BigInt>>, _>(delays)
}

/// The cancellation for these tables.
pub(crate) fn cancel_sql(tables: &Tables) -> String {
    qualified(tables, CANCEL_SQL)
}

/// The cancellation with an id bound: it changes one row or none.
pub(crate) fn cancel(sql: &str, id: MessageId) -> Statement<'_> {
    Statement::new(sql).bind::<SqlUuid, _>(id.as_uuid())
}
