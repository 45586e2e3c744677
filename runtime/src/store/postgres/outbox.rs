use std::time::Duration;

use diesel::sql_types::{Array, BigInt, Integer, SmallInt, Text, Uuid as SqlUuid};
use diesel_async::AsyncPgConnection;
use uuid::Uuid;

use super::PostgresStore;
use super::columns::{MessageColumns, MessageRow, parsed};
use super::duration::{duration, micros};
use super::statement::{Statement, statements};
use crate::message::Slot;
#[allow(unused_imports)]
use crate::message::*;
use crate::store::text::storable;
#[allow(unused_imports)]
use crate::store::*;
use crate::store::{
    Backlog, FailedRow, Fence, OutboxRow, OutboxStore, Resource, RowId, StoreError, StoreErrorKind,
};

/// The first rows of a lane, with their ranks in it, that can be dispatched now. See
/// [`OutboxTexts`].
macro_rules! first_rows {
    ($lane:literal, $after:literal, $limit:literal) => {
        concat!(
            "SELECT position, row_number() OVER (ORDER BY position) AS rank
        FROM (
            (SELECT o.position
             FROM {posta}outbox o
             WHERE o.slot = ", $lane, ".slot AND o.held_until IS NULL AND o.position + 0 > ", $after, "
               AND o.position NOT IN (SELECT unnest($2::bigint[]))
               AND NOT EXISTS (
                   SELECT FROM {posta}outbox h
                   WHERE h.slot = o.slot AND h.ordering_key = o.ordering_key AND h.position < o.position
                     AND h.held_until IS NOT NULL AND h.position NOT IN (SELECT position FROM over) OFFSET 0)
             ORDER BY o.position + 0
             LIMIT ", $limit, ")
            UNION ALL
            SELECT over.position FROM over WHERE over.slot = ", $lane, ".slot AND over.position > ", $after, "
        ) AS either
        ORDER BY position
        LIMIT ", $limit
        )
    };
}

statements!(OutboxTexts {
    // In rounds, so that lanes share the limit and none starves. First, each lane gives its first
    // rows, up to an equal share; if that leaves room, the lanes that gave their whole share read
    // on, up to twice an equal share of the room; what then is left, any of them may fill. (Without
    // the second round, many lanes would each read as much as only one of them can give.) Whose
    // last row is one too many is left to chance (random()), or the same lanes would always lose.
    //
    // All in one statement, that is on one snapshot: of two commits one after the other, a later
    // round with a snapshot of its own could see the second's row ahead and miss the first's, with
    // a lower number, behind.
    //
    // A lane's rows come from two indexes, since held rows may be many (a broker without a binding
    // gives back every row) and must not be walked over: `outbox_waiting` has the rows that never
    // failed, `outbox_due` those that did, by the end of their hold. Of the latter the first failed
    // one of each key is `over`. A row that never failed comes only if each failed row of its key
    // before it is one of those: so, wherever a limit cuts, no row comes without its predecessors.
    // `outbox_held` finds them, by key.
    //
    // Three things keep the planner to that. `position + 0` is an order that only `outbox_waiting`
    // has. OFFSET 0 keeps an EXISTS a lookup for each row; the other ways are quick only while few
    // rows are on hold. The rows in flight are a hashed subplan (NOT IN). Payloads are fetched
    // last, for the rows chosen.
    //
    // statement_timestamp() is one instant for the whole statement, moves on within a transaction,
    // and unlike clock_timestamp() can be compared with by an index.
    pending = concat!("
WITH lane AS MATERIALIZED (
    SELECT slot, greatest(1, ceil($3::float8 / count(*) OVER ()))::bigint AS share
    FROM unnest($1::smallint[]) AS l (slot)
), over AS MATERIALIZED (
    SELECT lane.slot, o.position
    FROM lane CROSS JOIN LATERAL (
        SELECT o.position
        FROM {posta}outbox o
        WHERE o.slot = lane.slot AND o.held_until <= statement_timestamp()
          AND o.position NOT IN (SELECT unnest($2::bigint[]))
          AND NOT EXISTS (
              SELECT FROM {posta}outbox h
              WHERE h.slot = o.slot AND h.ordering_key = o.ordering_key AND h.position < o.position
                AND h.held_until IS NOT NULL OFFSET 0)
        ORDER BY o.held_until, o.position
        LIMIT lane.share
    ) o
), first AS MATERIALIZED (
    SELECT lane.slot, lane.share, o.position, o.rank
    FROM lane CROSS JOIN LATERAL (", first_rows!("lane", "0", "lane.share"), ") o
), second_lane AS MATERIALIZED (
    SELECT slot, max(position) AS position,
           2 * ceil(greatest(0, $3 - (SELECT count(*) FROM first))::float8 / count(*) OVER ())::bigint AS share
    FROM first GROUP BY slot, share HAVING count(*) = share
), second AS MATERIALIZED (
    SELECT l.slot, l.share, o.position, o.rank
    FROM second_lane l CROSS JOIN LATERAL (", first_rows!("l", "l.position", "l.share"), ") o
), third_lane AS MATERIALIZED (
    SELECT slot, max(position) AS position,
           greatest(0, $3 - (SELECT count(*) FROM first) - (SELECT count(*) FROM second)) AS share
    FROM second GROUP BY slot, share HAVING count(*) = share
), third AS (
    SELECT l.slot, l.share, o.position, o.rank
    FROM third_lane l CROSS JOIN LATERAL (", first_rows!("l", "l.position", "l.share"), ") o
), chosen AS (
    SELECT position
    FROM (
        SELECT position, 1 AS round, rank FROM first
        UNION ALL SELECT position, 2, rank FROM second
        UNION ALL SELECT position, 3, rank FROM third
    ) AS rows
    ORDER BY round, rank, random()
    LIMIT $3
)
SELECT o.slot, o.position, o.attempts, o.message_id, o.message_type, o.version, o.ordering_key, o.headers::text,
       o.content_type, o.payload, o.enqueued_at
FROM chosen JOIN {posta}outbox o USING (position)
ORDER BY o.position");

    // One statement, so that a row is never in both tables or in none. The lease is read and not
    // locked: a lock would stop its renewal and its taking over for as long as this transaction
    // lives. A new owner that reads a row just before this commits publishes it again (N1) and then
    // finds nothing to settle.
    mark_dispatched = "
WITH owned AS (
    SELECT l.number FROM unnest($3::uuid[], $4::smallint[], $5::bigint[]) AS f (owner, number, epoch)
    JOIN {posta}lease l ON l.resource = 'outbox' AND l.number = f.number AND l.owner = f.owner AND l.epoch = f.epoch
    WHERE l.expires_at > statement_timestamp()
), gone AS (
    DELETE FROM {posta}outbox o
    USING unnest($1::smallint[], $2::bigint[]) AS r (slot, position)
    WHERE o.position = r.position AND o.slot = r.slot AND o.slot IN (SELECT number FROM owned)
    RETURNING o.*
)
INSERT INTO {posta}dispatched (position, message_id, message_type, version, ordering_key, headers, content_type, payload,
                               enqueued_at, slot, attempts)
SELECT position, message_id, message_type, version, ordering_key, headers, content_type, payload, enqueued_at, slot, attempts
FROM gone
RETURNING slot, position";

    // attempts stops short of its column's end.
    mark_failed = "
WITH owned AS (
    SELECT l.number FROM unnest($5::uuid[], $6::smallint[], $7::bigint[]) AS f (owner, number, epoch)
    JOIN {posta}lease l ON l.resource = 'outbox' AND l.number = f.number AND l.owner = f.owner AND l.epoch = f.epoch
    WHERE l.expires_at > statement_timestamp()
)
UPDATE {posta}outbox o
SET attempts = least(o.attempts, 2147483646) + 1,
    last_error = r.error,
    held_until = statement_timestamp() + r.hold * interval '1 microsecond'
FROM unnest($1::smallint[], $2::bigint[], $3::text[], $4::bigint[]) AS r (slot, position, error, hold)
WHERE o.position = r.position AND o.slot = r.slot AND o.slot IN (SELECT number FROM owned)
RETURNING o.slot, o.position";

    remove = "
WITH owned AS (
    SELECT l.number FROM unnest($3::uuid[], $4::smallint[], $5::bigint[]) AS f (owner, number, epoch)
    JOIN {posta}lease l ON l.resource = 'outbox' AND l.number = f.number AND l.owner = f.owner AND l.epoch = f.epoch
    WHERE l.expires_at > statement_timestamp()
)
DELETE FROM {posta}outbox o
USING unnest($1::smallint[], $2::bigint[]) AS r (slot, position)
WHERE o.position = r.position AND o.slot = r.slot AND o.slot IN (SELECT number FROM owned)
RETURNING o.slot, o.position";

    // Only holds that last: a row whose hold is over is pending like any other (or in flight), and
    // must not wake anybody again.
    next_due = "
SELECT (extract(epoch FROM min(o.held_until) - statement_timestamp()) * 1000000)::bigint
FROM unnest($1::smallint[]) AS lane (slot)
CROSS JOIN LATERAL (
    SELECT held_until FROM {posta}outbox
    WHERE slot = lane.slot AND held_until > statement_timestamp()
    ORDER BY held_until LIMIT 1
) o";

    // Counts the rows, all of them: for health and metrics, not for a loop.
    backlog = "
SELECT count(*), count(held_until),
       (extract(epoch FROM statement_timestamp() - min(enqueued_at)) * 1000000)::bigint
FROM {posta}outbox";
});

impl OutboxStore for PostgresStore {
    async fn park(
        &self,
        _connection: &mut AsyncPgConnection,
        _fences: &[Fence],
        _rows: &[(RowId, LetterId)],
    ) -> Result<Vec<RowId>, StoreError> {
        todo!()
    }
    async fn readmit(
        &self,
        _connection: &mut AsyncPgConnection,
        _letter: LetterId,
        _envelope: &Envelope,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    async fn unpark(
        &self,
        _connection: &mut AsyncPgConnection,
        _letter: LetterId,
    ) -> Result<bool, StoreError> {
        todo!()
    }
    async fn pending(
        &self,
        connection: &mut AsyncPgConnection,
        lanes: &[Slot],
        in_flight: &[RowId],
        limit: usize,
    ) -> Result<Vec<OutboxRow>, StoreError> {
        if lanes.is_empty() || limit == 0 {
            return Ok(Vec::new());
        }
        // Positions alone name rows: they are drawn from one sequence for all lanes.
        let in_flight: Vec<i64> = in_flight.iter().map(|row| row.position).collect();
        let rows: Vec<(i16, i64, i32, MessageRow)> = Statement::new(&self.texts().outbox.pending)
            .bind::<Array<SmallInt>, _>(numbers(lanes))
            .bind::<Array<BigInt>, _>(in_flight)
            .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX))
            .returning::<(SmallInt, BigInt, Integer, MessageColumns)>()
            .front_rows(connection, READ)
            .await?;
        rows.into_iter()
            .map(|(slot, position, attempts, message)| {
                Ok(OutboxRow {
                    failed_at: None,
                    letter: None,
                    id: row_id((slot, position), READ)?,
                    attempts: u32::try_from(attempts).unwrap_or_default(),
                    message: parsed(message),
                })
            })
            .collect()
    }

    async fn mark_dispatched(
        &self,
        connection: &mut AsyncPgConnection,
        fences: &[Fence],
        rows: &[RowId],
    ) -> Result<Vec<RowId>, StoreError> {
        let text = &self.texts().outbox.mark_dispatched;
        leave(connection, text, fences, rows, "settle dispatched rows").await
    }

    async fn mark_failed(
        &self,
        connection: &mut AsyncPgConnection,
        fences: &[Fence],
        rows: &[FailedRow],
    ) -> Result<Vec<RowId>, StoreError> {
        const OPERATION: &str = "put failed rows on hold";
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let statement = Statement::new(&self.texts().outbox.mark_failed)
            .bind::<Array<SmallInt>, _>(rows.iter().map(|row| slot(row.id)).collect::<Vec<_>>())
            .bind::<Array<BigInt>, _>(rows.iter().map(|row| row.id.position).collect::<Vec<_>>())
            .bind::<Array<Text>, _>(
                rows.iter()
                    .map(|row| storable(&row.error))
                    .collect::<Vec<_>>(),
            )
            .bind::<Array<BigInt>, _>(rows.iter().map(|row| micros(row.hold)).collect::<Vec<_>>());
        changed(connection, fenced(statement, fences), OPERATION).await
    }

    async fn remove(
        &self,
        connection: &mut AsyncPgConnection,
        fences: &[Fence],
        rows: &[RowId],
    ) -> Result<Vec<RowId>, StoreError> {
        let text = &self.texts().outbox.remove;
        leave(
            connection,
            text,
            fences,
            rows,
            "remove rows from the outbox",
        )
        .await
    }

    /// PostgreSQL computes the slot of every row itself.
    async fn adopt(
        &self,
        _connection: &mut AsyncPgConnection,
        _limit: usize,
    ) -> Result<usize, StoreError> {
        Ok(0)
    }

    async fn next_due(
        &self,
        connection: &mut AsyncPgConnection,
        lanes: &[Slot],
    ) -> Result<Option<Duration>, StoreError> {
        let (wait,): (Option<i64>,) = Statement::new(&self.texts().outbox.next_due)
            .bind::<Array<SmallInt>, _>(numbers(lanes))
            .returning::<(diesel::sql_types::Nullable<BigInt>,)>()
            .row(connection, "read when a row on hold is due")
            .await?;
        Ok(wait.map(duration))
    }

    async fn backlog(&self, connection: &mut AsyncPgConnection) -> Result<Backlog, StoreError> {
        let counted: Vec<(i64, i64, Option<i64>)> = Statement::new(&self.texts().outbox.backlog)
            .returning::<(BigInt, BigInt, diesel::sql_types::Nullable<BigInt>)>()
            .front_rows(connection, "count the outbox")
            .await?;
        let (rows, held, oldest) = counted.into_iter().next().unwrap_or_default();
        Ok(Backlog {
            parked: 0,
            rows: rows.unsigned_abs(),
            held: held.unsigned_abs(),
            oldest: oldest.map(duration).unwrap_or_default(),
        })
    }
}

const READ: &str = "read the outbox";

/// Runs a statement that takes rows out of the outbox.
async fn leave(
    connection: &mut AsyncPgConnection,
    text: &str,
    fences: &[Fence],
    rows: &[RowId],
    operation: &'static str,
) -> Result<Vec<RowId>, StoreError> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let statement = Statement::new(text)
        .bind::<Array<SmallInt>, _>(rows.iter().map(|row| slot(*row)).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(rows.iter().map(|row| row.position).collect::<Vec<_>>());
    changed(connection, fenced(statement, fences), operation).await
}

/// Binds the fences of lanes: owners, numbers, epochs.
fn fenced<'a>(statement: Statement<'a>, fences: &[Fence]) -> Statement<'a> {
    let lanes = || {
        fences
            .iter()
            .filter(|fence| fence.resource == Resource::Lanes)
    };
    let owners: Vec<Uuid> = lanes().map(|fence| fence.owner.as_uuid()).collect();
    let numbers: Vec<i16> = lanes().map(|fence| i16::from(fence.grant.number)).collect();
    let epochs: Vec<i64> = lanes().map(|fence| fence.grant.epoch).collect();
    statement
        .bind::<Array<SqlUuid>, _>(owners)
        .bind::<Array<SmallInt>, _>(numbers)
        .bind::<Array<BigInt>, _>(epochs)
}

async fn changed(
    connection: &mut AsyncPgConnection,
    statement: Statement<'_>,
    operation: &'static str,
) -> Result<Vec<RowId>, StoreError> {
    let rows: Vec<(i16, i64)> = statement
        .returning::<(SmallInt, BigInt)>()
        .rows(connection, operation)
        .await?;
    rows.into_iter().map(|row| row_id(row, operation)).collect()
}

fn slot(row: RowId) -> i16 {
    i16::from(row.slot.number())
}

fn numbers(lanes: &[Slot]) -> Vec<i16> {
    lanes.iter().map(|lane| i16::from(lane.number())).collect()
}

pub(super) fn row_id(
    (slot, position): (i16, i64),
    operation: &'static str,
) -> Result<RowId, StoreError> {
    let slot = u8::try_from(slot).ok().and_then(Slot::new).ok_or_else(|| {
        let why = format!("the row at position {position} has the slot {slot}");
        StoreError::new(operation, StoreErrorKind::Corrupt, why)
    })?;
    Ok(RowId { slot, position })
}
