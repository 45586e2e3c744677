//! The retry table: heads that wait for their next try, their successors, and the places of dead
//! letters. The statements are in `texts`, each with its reason.

mod rows;
mod texts;

use std::collections::BTreeMap;
use std::iter;
use std::ops::RangeInclusive;
use std::time::Duration;

use diesel::sql_types::{
    Array, BigInt, Binary, Bool, Integer, Nullable, SmallInt, Text, Timestamptz, Uuid as SqlUuid,
};
use diesel_async::AsyncPgConnection;

use self::rows::{Left, LeftColumns, count, fenced, held_rows, ranged};
pub(super) use self::texts::RetryTexts;
use super::PostgresStore;
use super::columns::timestamp;
use super::duration::{duration, micros};
use super::enqueue::Columns;
use super::statement::Statement;
use crate::message::{Envelope, OrderingKey, Slot};
use crate::store::text::storable;
use crate::store::walk::{Part, Walk};
use crate::store::{
    Claim, Fence, HeldRow, LetterId, MemberId, NewHold, Postponement, Recall, RetryStore,
    StoreError,
};

const READ: &str = "read the retry table";

impl RetryStore for PostgresStore {
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
        let letters: Vec<Option<i64>> = holds
            .iter()
            .map(|hold| hold.parked.map(|LetterId(letter)| letter))
            .collect();
        let payloads: Vec<&[u8]> = holds
            .iter()
            .map(|hold| match hold.parked {
                None => &hold.envelope.payload[..],
                Some(_) => &[],
            })
            .collect();
        Statement::new(&self.texts().retry.hold)
            .bind::<Text, _>(consumer)
            .bind::<Array<SmallInt>, _>(slots)
            .bind::<Array<SqlUuid>, _>(columns.ids)
            .bind::<Array<Text>, _>(columns.types)
            .bind::<Array<Integer>, _>(columns.versions)
            .bind::<Array<Nullable<Text>>, _>(columns.keys)
            .bind::<Array<Text>, _>(columns.headers)
            .bind::<Array<Text>, _>(columns.content_types)
            .bind::<Array<Binary>, _>(payloads)
            .bind::<Array<Nullable<Timestamptz>>, _>(enqueued)
            .bind::<Array<Integer>, _>(attempts)
            .bind::<Array<Nullable<BigInt>>, _>(delays)
            .bind::<Array<Nullable<Text>>, _>(errors)
            .bind::<Array<Nullable<BigInt>>, _>(letters)
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
        let orphans = match self
            .walks()
            .begin(Part::Retry(consumer.to_owned(), slots.clone()))
        {
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
        match self
            .walks()
            .begin(Part::Retry(consumer.to_owned(), slots.clone()))
        {
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

    async fn claim(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        fence: &Fence,
        positions: &[i64],
        member: MemberId,
    ) -> Result<Vec<Claim>, StoreError> {
        if positions.is_empty() {
            return Ok(Vec::new());
        }
        let claimed: Vec<(i64, bool, i32)> =
            fenced::<Array<BigInt>, _>(&self.texts().retry.claim, consumer, fence, positions)
                .bind::<SqlUuid, _>(member.as_uuid())
                .returning::<(BigInt, Bool, Integer)>()
                .rows(connection, CLAIM)
                .await?;
        Ok(claimed.into_iter().map(claim).collect())
    }

    async fn claim_alone(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        fence: &Fence,
        position: i64,
        member: MemberId,
    ) -> Result<Option<Claim>, StoreError> {
        let text = &self.texts().retry.claim_alone;
        let claimed: Vec<(i64, bool, i32)> = fenced::<BigInt, _>(text, consumer, fence, position)
            .bind::<SqlUuid, _>(member.as_uuid())
            .returning::<(BigInt, Bool, Integer)>()
            .rows(connection, CLAIM)
            .await?;
        Ok(claimed.into_iter().next().map(claim))
    }

    async fn unclaim(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        slots: RangeInclusive<u8>,
        member: MemberId,
    ) -> Result<(), StoreError> {
        ranged(&self.texts().retry.unclaim, consumer, &slots)
            .bind::<SqlUuid, _>(member.as_uuid())
            .run(connection, "end claims on messages on hold")
            .await?;
        Ok(())
    }

    async fn release(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        fence: &Fence,
        positions: &[i64],
    ) -> Result<Vec<i64>, StoreError> {
        const OPERATION: &str = "release messages on hold";
        if positions.is_empty() {
            return Ok(Vec::new());
        }
        let mut sorted = positions.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let text = &self.texts().retry.release;
        let left: Vec<Left> = fenced::<Array<BigInt>, _>(text, consumer, fence, sorted)
            .returning::<LeftColumns>()
            .rows(connection, OPERATION)
            .await?;
        self.promote(connection, consumer, &left, OPERATION).await?;
        let letters: Vec<i64> = left.iter().filter_map(|(.., letter)| *letter).collect();
        self.replayed(connection, letters).await?;
        let mut released: Vec<i64> = left.iter().map(|(position, ..)| *position).collect();
        released.sort_unstable();
        Ok(released)
    }

    async fn park_held(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        fence: &Fence,
        position: i64,
        letter: LetterId,
    ) -> Result<bool, StoreError> {
        let text = &self.texts().retry.park;
        let changed = fenced::<BigInt, _>(text, consumer, fence, position)
            .bind::<BigInt, _>(letter.0)
            .run(connection, "park a message on hold")
            .await?;
        Ok(changed > 0)
    }

    async fn readmit_held(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        letter: LetterId,
        slot: Slot,
        envelope: &Envelope,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "put a dead letter's message back on hold";
        let place = readmitted(
            &self.texts().retry.readmit_place,
            consumer,
            letter,
            envelope,
        );
        if place.run(connection, OPERATION).await? > 0 {
            return Ok(true);
        }
        let end = readmitted(&self.texts().retry.readmit, consumer, letter, envelope)
            .bind::<SmallInt, _>(i16::from(slot.number()))
            .bind::<Nullable<Text>, _>(envelope.key.as_ref().map(OrderingKey::as_str))
            .bind::<SqlUuid, _>(envelope.id.as_uuid());
        Ok(end.run(connection, OPERATION).await? > 0)
    }

    async fn unpark_held(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        letter: LetterId,
    ) -> Result<bool, StoreError> {
        const OPERATION: &str = "let a parked key go on";
        let left: Vec<Left> = Statement::new(&self.texts().retry.unpark)
            .bind::<Text, _>(consumer)
            .bind::<BigInt, _>(letter.0)
            .returning::<LeftColumns>()
            .rows(connection, OPERATION)
            .await?;
        self.promote(connection, consumer, &left, OPERATION).await?;
        Ok(!left.is_empty())
    }

    async fn recall_held(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        letter: LetterId,
        place: bool,
    ) -> Result<Recall, StoreError> {
        const OPERATION: &str = "take a replayed message back";
        let position = match self.find_held(connection, consumer, letter).await? {
            Ok(position) => position,
            Err(recall) => return Ok(recall),
        };
        if place {
            self.park_recalled(connection, position).await?;
            return Ok(Recall::Back);
        }
        let left: Vec<Left> = Statement::new(&self.texts().retry.withdraw)
            .bind::<BigInt, _>(position)
            .returning::<LeftColumns>()
            .rows(connection, OPERATION)
            .await?;
        self.promote(connection, consumer, &left, OPERATION).await?;
        Ok(Recall::Back)
    }

    async fn postpone(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        fence: &Fence,
        position: i64,
        Postponement { error, delay }: Postponement<'_>,
    ) -> Result<bool, StoreError> {
        let text = &self.texts().retry.postpone;
        let changed = fenced::<BigInt, _>(text, consumer, fence, position)
            .bind::<Nullable<Text>, _>(error.map(storable))
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

    async fn held_count(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        key: &OrderingKey,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let (held,): (i64,) = of_key(&self.texts().retry.held_count, consumer, key, limit)
            .returning::<(BigInt,)>()
            .row(connection, READ)
            .await?;
        Ok(usize::try_from(held).unwrap_or_default())
    }

    async fn held_of_key(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        key: &OrderingKey,
        limit: usize,
    ) -> Result<Vec<HeldRow>, StoreError> {
        let statement = of_key(&self.texts().retry.held_of_key, consumer, key, limit);
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
        walk.end(steps.unsigned_abs(), orphans.len());
        Ok(orphans)
    }

    /// Makes the next message due of each key whose first ones have left.
    async fn promote(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        left: &[Left],
        operation: &'static str,
    ) -> Result<(), StoreError> {
        let mut keys: BTreeMap<(i16, &str), i64> = BTreeMap::new();
        for (position, slot, key, _) in left {
            if let Some(key) = key {
                let first = keys.entry((*slot, key)).or_insert(*position);
                *first = (*first).min(*position);
            }
        }
        if keys.is_empty() {
            return Ok(());
        }
        Statement::new(&self.texts().retry.promote)
            .bind::<Text, _>(consumer)
            .bind::<Array<SmallInt>, _>(keys.keys().map(|(slot, _)| *slot).collect::<Vec<_>>())
            .bind::<Array<Text>, _>(keys.keys().map(|(_, key)| *key).collect::<Vec<_>>())
            .bind::<Array<BigInt>, _>(keys.values().copied().collect::<Vec<_>>())
            .run(connection, operation)
            .await?;
        Ok(())
    }
}

const CLAIM: &str = "claim messages on hold";

fn claim((position, abandoned, deaths): (i64, bool, i32)) -> Claim {
    Claim {
        position,
        abandoned,
        deaths: u32::try_from(deaths).unwrap_or_default(),
    }
}

/// Binds a key and a limit.
fn of_key<'a>(
    text: &'a str,
    consumer: &'a str,
    key: &'a OrderingKey,
    limit: usize,
) -> Statement<'a> {
    Statement::new(text)
        .bind::<Text, _>(consumer)
        .bind::<SmallInt, _>(i16::from(Slot::of_key(key).number()))
        .bind::<Text, _>(key.as_str())
        .bind::<BigInt, _>(count(limit))
}

/// Binds a dead letter and the message that goes on with it.
fn readmitted<'a>(
    text: &'a str,
    consumer: &'a str,
    letter: LetterId,
    envelope: &'a Envelope,
) -> Statement<'a> {
    let columns = Columns::of(iter::once(envelope));
    Statement::new(text)
        .bind::<Text, _>(consumer)
        .bind::<BigInt, _>(letter.0)
        .bind::<Text, _>(envelope.message_type.as_str())
        .bind::<Integer, _>(columns.versions[0])
        .bind::<Text, _>(columns.headers.concat())
        .bind::<Text, _>(envelope.content_type.as_str())
        .bind::<Binary, _>(&envelope.payload[..])
        .bind::<Nullable<Timestamptz>, _>(envelope.enqueued_at.and_then(timestamp))
}
