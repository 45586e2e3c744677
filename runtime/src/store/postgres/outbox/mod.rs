//! The outbox: rows that wait, those that have failed, and the places of dead letters. The
//! statements are in `texts`, each with its reason; what waits behind a message of its key is
//! `behind`.

mod behind;
mod texts;

use std::iter;
use std::time::Duration;

use diesel::data_types::PgTimestamp;
use diesel::sql_types::{
    Array, BigInt, Binary, Integer, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid,
};
use diesel_async::AsyncPgConnection;
use uuid::Uuid;

pub(super) use self::behind::BehindTexts;
pub(super) use self::texts::{OutboxTexts, owned};

use super::PostgresStore;
use super::columns::{MessageColumns, MessageRow, instant, parsed, timestamp};
use super::duration::{duration, micros};
use super::enqueue::Columns;
use super::statement::Statement;
use crate::message::{Envelope, OrderingKey, Slot};
use crate::store::text::storable;
use crate::store::{
    Backlog, FailedRow, Fence, LetterId, OutboxRow, OutboxStore, Recall, Resource, RowId,
    StoreError, StoreErrorKind,
};

impl OutboxStore for PostgresStore {
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
        self.sort_behind(connection, lanes).await?;
        // Positions alone name rows: they are drawn from one sequence for all lanes.
        let in_flight: Vec<i64> = in_flight.iter().map(|row| row.position).collect();
        let rows: Vec<Waiting> = Statement::new(&self.texts().outbox.pending)
            .bind::<Array<SmallInt>, _>(numbers(lanes))
            .bind::<Array<BigInt>, _>(in_flight)
            .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX))
            .returning::<WaitingColumns>()
            .front_rows(connection, READ)
            .await?;
        rows.into_iter()
            .map(|(slot, position, attempts, failed_at, letter, message)| {
                Ok(OutboxRow {
                    id: row_id((slot, position), READ)?,
                    attempts: u32::try_from(attempts).unwrap_or_default(),
                    failed_at: failed_at.and_then(instant),
                    letter: letter.map(LetterId),
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
        const OPERATION: &str = "settle dispatched rows";
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let text = &self.texts().outbox.mark_dispatched;
        let gone: Vec<Gone> = fenced(bound(text, rows), fences)
            .returning::<GoneColumns>()
            .rows(connection, OPERATION)
            .await?;
        let letters: Vec<i64> = gone.iter().filter_map(|(.., letter)| *letter).collect();
        self.replayed(connection, letters).await?;
        self.left(connection, gone, OPERATION).await
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
        const OPERATION: &str = "remove rows from the outbox";
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let gone: Vec<Gone> = fenced(bound(&self.texts().outbox.remove, rows), fences)
            .returning::<GoneColumns>()
            .rows(connection, OPERATION)
            .await?;
        self.left(connection, gone, OPERATION).await
    }

    async fn park(
        &self,
        connection: &mut AsyncPgConnection,
        fences: &[Fence],
        rows: &[(RowId, LetterId)],
    ) -> Result<Vec<RowId>, StoreError> {
        if rows.is_empty() {
            return Ok(Vec::new());
        }
        let ids: Vec<RowId> = rows.iter().map(|(row, _)| *row).collect();
        let letters: Vec<i64> = rows.iter().map(|(_, letter)| letter.0).collect();
        let statement = bound(&self.texts().outbox.park, &ids).bind::<Array<BigInt>, _>(letters);
        changed(connection, fenced(statement, fences), "park rows").await
    }

    async fn readmit(
        &self,
        connection: &mut AsyncPgConnection,
        letter: LetterId,
        envelope: &Envelope,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "put a dead letter's message back into the outbox";
        let place = readmitted(&self.texts().outbox.readmit_place, letter, envelope);
        if place.run(connection, OPERATION).await? > 0 {
            return Ok(true);
        }
        let end = readmitted(&self.texts().outbox.readmit, letter, envelope)
            .bind::<SqlUuid, _>(envelope.id.as_uuid())
            .bind::<Nullable<Text>, _>(envelope.key.as_ref().map(OrderingKey::as_str));
        Ok(end.run(connection, OPERATION).await? > 0)
    }

    async fn unpark(
        &self,
        connection: &mut AsyncPgConnection,
        letter: LetterId,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "let a parked key go on";
        let gone: Vec<(i16, Option<String>)> = Statement::new(&self.texts().outbox.unpark)
            .bind::<BigInt, _>(letter.0)
            .returning::<(SmallInt, Nullable<Text>)>()
            .rows(connection, OPERATION)
            .await?;
        let unparked = !gone.is_empty();
        let keys = gone
            .into_iter()
            .filter_map(|(slot, key)| Some((slot, key?)));
        self.let_follow(connection, keys, OPERATION).await?;
        Ok(unparked)
    }

    async fn recall(
        &self,
        connection: &mut AsyncPgConnection,
        letter: LetterId,
        place: bool,
    ) -> Result<Recall, StoreError> {
        self.recall_row(connection, letter, place).await
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
            .returning::<(Nullable<BigInt>,)>()
            .row(connection, "read when a row on hold is due")
            .await?;
        Ok(wait.map(duration))
    }

    async fn backlog(&self, connection: &mut AsyncPgConnection) -> Result<Backlog, StoreError> {
        let counted: Vec<(i64, i64, i64, Option<i64>)> =
            Statement::new(&self.texts().outbox.backlog)
                .returning::<(BigInt, BigInt, BigInt, Nullable<BigInt>)>()
                .front_rows(connection, "count the outbox")
                .await?;
        let (rows, held, parked, oldest) = counted.into_iter().next().unwrap_or_default();
        Ok(Backlog {
            rows: rows.unsigned_abs(),
            held: held.unsigned_abs(),
            parked: parked.unsigned_abs(),
            oldest: oldest.map(duration).unwrap_or_default(),
        })
    }
}

/// What [`OutboxTexts`] selects of a row that waits.
type WaitingColumns = (
    SmallInt,
    BigInt,
    Integer,
    Nullable<Timestamptz>,
    Nullable<BigInt>,
    MessageColumns,
);

type Waiting = (i16, i64, i32, Option<PgTimestamp>, Option<i64>, MessageRow);

const READ: &str = "read the outbox";

/// What has left: slot, position, the key if others may have waited for it, and the letter.
type GoneColumns = (SmallInt, BigInt, Nullable<Text>, Nullable<BigInt>);

type Gone = (i16, i64, Option<String>, Option<i64>);

impl PostgresStore {
    /// Lets those follow that waited for these rows; returns them in insertion order.
    async fn left(
        &self,
        connection: &mut AsyncPgConnection,
        mut gone: Vec<Gone>,
        operation: &'static str,
    ) -> Result<Vec<RowId>, StoreError> {
        gone.sort_unstable_by_key(|(_, position, ..)| *position);
        let waited = gone
            .iter_mut()
            .filter_map(|(slot, _, key, _)| Some((*slot, key.take()?)));
        self.let_follow(connection, waited, operation).await?;
        gone.into_iter()
            .map(|(slot, position, ..)| row_id((slot, position), operation))
            .collect()
    }
}

/// Binds rows: slots, positions.
fn bound<'a>(text: &'a str, rows: &[RowId]) -> Statement<'a> {
    Statement::new(text)
        .bind::<Array<SmallInt>, _>(rows.iter().map(|row| slot(*row)).collect::<Vec<_>>())
        .bind::<Array<BigInt>, _>(rows.iter().map(|row| row.position).collect::<Vec<_>>())
}

/// Binds a dead letter and the message that goes out again with it.
fn readmitted<'a>(text: &'a str, letter: LetterId, envelope: &'a Envelope) -> Statement<'a> {
    let columns = Columns::of(iter::once(envelope));
    Statement::new(text)
        .bind::<BigInt, _>(letter.0)
        .bind::<Text, _>(envelope.message_type.as_str())
        .bind::<Integer, _>(columns.versions[0])
        .bind::<Text, _>(columns.headers.concat())
        .bind::<Text, _>(envelope.content_type.as_str())
        .bind::<Binary, _>(&envelope.payload[..])
        .bind::<Nullable<Timestamptz>, _>(envelope.enqueued_at.and_then(timestamp))
}

/// Binds the fences of lanes: owners, numbers, epochs.
pub(super) fn fenced<'a>(statement: Statement<'a>, fences: &[Fence]) -> Statement<'a> {
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

/// Runs a statement that changes rows; returns those that it changed, in insertion order.
async fn changed(
    connection: &mut AsyncPgConnection,
    statement: Statement<'_>,
    operation: &'static str,
) -> Result<Vec<RowId>, StoreError> {
    let mut rows: Vec<(i16, i64)> = statement
        .returning::<(SmallInt, BigInt)>()
        .rows(connection, operation)
        .await?;
    rows.sort_unstable_by_key(|(_, position)| *position);
    rows.into_iter().map(|row| row_id(row, operation)).collect()
}

fn slot(row: RowId) -> i16 {
    i16::from(row.slot.number())
}

pub(super) fn numbers(lanes: &[Slot]) -> Vec<i16> {
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
