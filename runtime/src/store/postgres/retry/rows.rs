use std::ops::RangeInclusive;

use diesel::data_types::PgTimestamp;
use diesel::pg::Pg;
use diesel::serialize::ToSql;
use diesel::sql_types::{
    BigInt, Bool, HasSqlType, Integer, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid,
};
use diesel_async::AsyncPgConnection;

use super::READ;
use crate::store::postgres::columns::{MessageColumns, MessageRow, instant, trusted};
use crate::store::postgres::duration::duration;
use crate::store::postgres::statement::Statement;
use crate::store::{Fence, HeldRow, LetterId, StoreError};

/// What a statement returns of rows that have left: position, slot, key, dead letter.
pub(super) type LeftColumns = (BigInt, SmallInt, Nullable<Text>, Nullable<BigInt>);

/// A row that has left.
pub(super) type Left = (i64, i16, Option<String>, Option<i64>);

type HeldColumns = (
    BigInt,
    Integer,
    Nullable<BigInt>,
    Nullable<Timestamptz>,
    Nullable<BigInt>,
    Bool,
    MessageColumns,
);

type Held = (
    i64,
    i32,
    Option<i64>,
    Option<PgTimestamp>,
    Option<i64>,
    bool,
    MessageRow,
);

/// A limit as statements take it.
pub(super) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Binds a consumer and a range of slots.
pub(super) fn ranged<'a>(
    text: &'a str,
    consumer: &'a str,
    slots: &RangeInclusive<u8>,
) -> Statement<'a> {
    Statement::new(text)
        .bind::<Text, _>(consumer)
        .bind::<SmallInt, _>(i16::from(*slots.start()))
        .bind::<SmallInt, _>(i16::from(*slots.end()))
}

/// The name of the consumer's partitions, if the fence is one of them; else one that nothing is
/// leased by.
fn resource_of(consumer: &str, fence: &Fence) -> String {
    if fence.resource.is_of(consumer) {
        fence.resource.name()
    } else {
        String::new()
    }
}

/// Binds one or more rows and the fence of their partition.
pub(super) fn fenced<'a, ST, Positions>(
    text: &'a str,
    consumer: &'a str,
    fence: &Fence,
    positions: Positions,
) -> Statement<'a>
where
    ST: Send + 'a,
    Pg: HasSqlType<ST>,
    Positions: ToSql<ST, Pg> + Send + 'a,
{
    Statement::new(text)
        .bind::<ST, _>(positions)
        .bind::<Text, _>(consumer)
        .bind::<Text, _>(resource_of(consumer, fence))
        .bind::<SmallInt, _>(i16::from(fence.grant.number))
        .bind::<SqlUuid, _>(fence.owner.as_uuid())
        .bind::<BigInt, _>(fence.grant.epoch)
}

/// Reads rows as [`super::RetryTexts`] selects them.
pub(super) async fn held_rows(
    connection: &mut AsyncPgConnection,
    statement: Statement<'_>,
) -> Result<Vec<HeldRow>, StoreError> {
    let rows: Vec<Held> = statement
        .returning::<HeldColumns>()
        .front_rows(connection, READ)
        .await?;
    rows.into_iter()
        .map(
            |(position, attempts, unhandled_for, failed_at, letter, parked, message)| {
                Ok(HeldRow {
                    position,
                    envelope: trusted(message, READ)?,
                    attempts: u32::try_from(attempts).unwrap_or_default(),
                    unhandled_for: unhandled_for.map(duration),
                    failed_at: failed_at.and_then(instant),
                    letter: letter.map(LetterId),
                    parked,
                })
            },
        )
        .collect()
}
