use diesel::data_types::PgTimestamp;
use diesel::sql_types::{BigInt, Nullable, Text, Timestamptz};
use diesel_async::AsyncPgConnection;
use futures_util::future::try_join;
use time::OffsetDateTime;

use super::PostgresStore;
use super::classify::failed;
use super::columns::{bound, stored};
use super::statement::{Statement, statements};
use crate::store::{
    RedispatchFilter, RedispatchPreview, RedispatchStep, RedispatchStore, StoreError,
};

/// Whether a kept row `d` is one of those that a filter chooses: $1 to $4, as [`filtered`] binds
/// them.
macro_rules! chosen {
    () => {
        "d.dispatched_at < $1 AND ($2::timestamptz IS NULL OR d.dispatched_at >= $2)
  AND ($3::text IS NULL OR d.message_type = $3) AND ($4::text IS NULL OR d.ordering_key = $4)"
    };
}

statements!(RedispatchTexts {
    now = "
SELECT statement_timestamp()";

    preview = concat!("
SELECT count(*), count(DISTINCT d.ordering_key) FROM {posta}dispatched d WHERE ", chosen!());

    // Whoever handles a type has said so when it started; what it has handled is in its inbox.
    lacking = concat!("
SELECT h.consumer, count(*) FILTER (WHERE i.message_id IS NULL)
FROM {posta}dispatched d
JOIN {posta}handled_type h ON h.message_type = d.message_type
LEFT JOIN {posta}inbox i ON i.consumer = h.consumer AND i.message_id = d.message_id
WHERE ", chosen!(), "
GROUP BY h.consumer ORDER BY h.consumer");

    // The rows are read in their order: behind the step before, and at first from the first that can
    // be one of them. BRIN finds that one among those of the time (+ 0 keeps the planner from
    // looking for it in that same order), so what was dispatched long before is not walked over.
    //
    // In the order of enqueueing, and the numbers of the outbox are drawn after the sort. Two that
    // do this at once take turns: the lock waits, then goes on behind what the other has moved. A
    // message whose id waits in the outbox already only leaves `dispatched`.
    redispatch = concat!("
WITH chosen AS MATERIALIZED (
    SELECT d.position FROM {posta}dispatched d WHERE ", chosen!(), "
      AND d.position > CASE
          WHEN $5::bigint IS NOT NULL THEN $5
          WHEN $2::timestamptz IS NULL THEN 0
          ELSE (
              SELECT min(f.position + 0) - 1 FROM {posta}dispatched f WHERE f.dispatched_at >= $2 AND f.dispatched_at < $1)
      END
    ORDER BY d.position LIMIT $6 FOR UPDATE
), gone AS (
    DELETE FROM {posta}dispatched d USING chosen WHERE d.position = chosen.position
    RETURNING d.*
), back AS (
    INSERT INTO {posta}outbox (message_id, message_type, version, ordering_key, headers, content_type, payload, enqueued_at)
    SELECT message_id, message_type, version, ordering_key, headers, content_type, payload, enqueued_at
    FROM gone ORDER BY position
    ON CONFLICT (message_id) DO NOTHING
)
SELECT count(*), max(position) FROM gone");
});

impl RedispatchStore for PostgresStore {
    async fn now(&self, connection: &mut AsyncPgConnection) -> Result<OffsetDateTime, StoreError> {
        const OPERATION: &str = "read the database's clock";
        let (now,): (PgTimestamp,) = Statement::new(&self.texts().redispatch.now)
            .returning::<(Timestamptz,)>()
            .row(connection, OPERATION)
            .await?;
        stored(now, OPERATION)
    }

    async fn preview_redispatch(
        &self,
        connection: &mut AsyncPgConnection,
        filter: &RedispatchFilter,
    ) -> Result<RedispatchPreview, StoreError> {
        let texts = &self.texts().redispatch;
        let counts = filtered(&texts.preview, filter).returning::<(BigInt, BigInt)>();
        let lacking = filtered(&texts.lacking, filter).returning::<(Text, BigInt)>();
        let result = {
            let connection = &*connection;
            try_join(
                counts.pipelined::<(i64, i64)>(connection),
                lacking.pipelined::<(String, i64)>(connection),
            )
            .await
        };
        let (counts, lacking) =
            result.map_err(|error| failed(connection, "preview a redispatch", error))?;
        let (rows, keys) = counts.into_iter().next().unwrap_or_default();
        Ok(RedispatchPreview {
            rows: rows.unsigned_abs(),
            keys: keys.unsigned_abs(),
            lacking: lacking
                .into_iter()
                .map(|(consumer, count)| (consumer, count.unsigned_abs()))
                .collect(),
        })
    }

    async fn redispatch(
        &self,
        connection: &mut AsyncPgConnection,
        filter: &RedispatchFilter,
        after: Option<i64>,
        limit: usize,
    ) -> Result<RedispatchStep, StoreError> {
        let moved: Vec<(i64, Option<i64>)> = filtered(&self.texts().redispatch.redispatch, filter)
            .bind::<Nullable<BigInt>, _>(after)
            .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX))
            .returning::<(BigInt, Nullable<BigInt>)>()
            .front_rows(connection, "redispatch kept rows")
            .await?;
        let (rows, last) = moved.into_iter().next().unwrap_or_default();
        Ok(RedispatchStep {
            rows: usize::try_from(rows).unwrap_or_default(),
            last,
        })
    }
}

/// Binds a filter.
fn filtered<'a>(text: &'a str, filter: &'a RedispatchFilter) -> Statement<'a> {
    Statement::new(text)
        .bind::<Timestamptz, _>(bound(filter.before))
        .bind::<Nullable<Timestamptz>, _>(filter.from.map(bound))
        .bind::<Nullable<Text>, _>(filter.message_type.as_deref())
        .bind::<Nullable<Text>, _>(filter.key.as_deref())
}
