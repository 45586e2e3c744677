use std::time::Duration;

use diesel::sql_types::{BigInt, Integer, Nullable, SmallInt, Text, Uuid as SqlUuid};
use diesel_async::AsyncPgConnection;
use uuid::Uuid;

use super::PostgresStore;
use super::duration::micros;
use super::statement::{Statement, statements};
use crate::store::{
    Attendance, Fence, Generation, Layout, LayoutStep, LayoutStore, MemberId, StoreError,
    StoreErrorKind, Wish,
};

/// The columns that make a layout.
macro_rules! columns {
    () => {
        "SELECT generation, partitions, step, other, drained, epoch FROM {posta}layout WHERE consumer = $1"
    };
}

statements!(LayoutTexts {
    read = columns!();

    // Whoever takes leases holds this, so that the layout in use cannot change under it. SKIP LOCKED,
    // here and in `lock`: a process that was stopped in the middle of its transaction keeps its lock,
    // and may keep nobody else from renewing leases.
    share = concat!(columns!(), " FOR SHARE SKIP LOCKED");

    lock = concat!(columns!(), " FOR UPDATE SKIP LOCKED");

    provide = "
INSERT INTO {posta}layout (consumer, partitions) VALUES ($1, $2) ON CONFLICT DO NOTHING";

    wish = "
INSERT INTO {posta}layout_wish (consumer, member, partitions, epoch, expires_at)
VALUES ($1, $2, $3, $4, statement_timestamp() + $5 * interval '1 microsecond')
ON CONFLICT (consumer, member)
DO UPDATE SET partitions = excluded.partitions, epoch = excluded.epoch, expires_at = excluded.expires_at";

    // As for members: nobody waits for another who forgets the same rows.
    forget = "
DELETE FROM {posta}layout_wish WHERE (consumer, member) IN (
    SELECT consumer, member FROM {posta}layout_wish
    WHERE consumer = $1 AND expires_at <= statement_timestamp()
    ORDER BY member FOR UPDATE SKIP LOCKED)";

    wishes = "
SELECT member, partitions, epoch FROM {posta}layout_wish
WHERE consumer = $1 AND expires_at > statement_timestamp() ORDER BY member";

    set = "
UPDATE {posta}layout
SET generation = $2, partitions = $3, step = $4, other = $5, drained = $6, epoch = epoch + 1, changed_at = clock_timestamp()
WHERE consumer = $1
RETURNING epoch";

    drained = "
UPDATE {posta}layout SET drained = drained | (1::bigint << $4::integer)
WHERE consumer = $1 AND epoch = $2 AND step = 'draining' AND EXISTS (
    SELECT FROM {posta}lease
    WHERE resource = $3 AND number = $4 AND owner = $5 AND lease.epoch = $6 AND expires_at > statement_timestamp())";

    unwish = "
DELETE FROM {posta}layout_wish WHERE consumer = $1 AND member = $2";
});

const READ: &str = "read a consumer's layout";

type Columns = (Integer, SmallInt, Text, Nullable<SmallInt>, BigInt, BigInt);
type Row = (i32, i16, String, Option<i16>, i64, i64);

impl PostgresStore {
    /// The layout by one of the statements that read it, and the wishes after it.
    async fn read_layout(
        &self,
        connection: &mut AsyncPgConnection,
        text: &str,
        consumer: &str,
    ) -> Result<Option<Layout>, StoreError> {
        let rows: Vec<Row> = Statement::new(text)
            .bind::<Text, _>(consumer)
            .returning::<Columns>()
            .rows(connection, READ)
            .await?;
        let Some((generation, partitions, step, other, drained, epoch)) = rows.into_iter().next()
        else {
            return Ok(None);
        };
        let other = other.map(number).transpose()?;
        let step = LayoutStep::of_columns(&step, other, drained)
            .ok_or_else(|| corrupt(format!("a layout is in the step {step:?}")))?;
        let wishes: Vec<(Uuid, i16, i64)> = Statement::new(&self.texts().layout.wishes)
            .bind::<Text, _>(consumer)
            .returning::<(SqlUuid, SmallInt, BigInt)>()
            .rows(connection, READ)
            .await?;
        let wish = |(member, partitions, epoch)| {
            Ok(Wish {
                member: MemberId::from(member),
                partitions: number(partitions)?,
                epoch,
            })
        };
        Ok(Some(Layout {
            generation: Generation {
                number: u32::try_from(generation).unwrap_or_default(),
                partitions: number(partitions)?,
            },
            step,
            epoch,
            wishes: wishes.into_iter().map(wish).collect::<Result<_, _>>()?,
        }))
    }
}

impl LayoutStore for PostgresStore {
    async fn attend(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        wish: Wish,
        ttl: Duration,
    ) -> Result<Attendance, StoreError> {
        const OPERATION: &str = "attend a consumer's layout";
        let texts = &self.texts().layout;
        Statement::new(&texts.wish)
            .bind::<Text, _>(consumer)
            .bind::<SqlUuid, _>(wish.member.as_uuid())
            .bind::<SmallInt, _>(i16::from(wish.partitions))
            .bind::<BigInt, _>(wish.epoch)
            .bind::<BigInt, _>(micros(ttl))
            .run(connection, OPERATION)
            .await?;
        Statement::new(&texts.forget)
            .bind::<Text, _>(consumer)
            .run(connection, OPERATION)
            .await?;
        for (text, settled) in [(&texts.share, true), (&texts.read, false)] {
            if let Some(layout) = self.read_layout(connection, text, consumer).await? {
                return Ok(Attendance { layout, settled });
            }
        }
        Statement::new(&texts.provide)
            .bind::<Text, _>(consumer)
            .bind::<SmallInt, _>(i16::from(wish.partitions))
            .run(connection, OPERATION)
            .await?;
        for (text, settled) in [(&texts.share, true), (&texts.read, false)] {
            if let Some(layout) = self.read_layout(connection, text, consumer).await? {
                return Ok(Attendance { layout, settled });
            }
        }
        Err(corrupt("a layout was taken away".to_owned()))
    }

    async fn layout(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
    ) -> Result<Option<Layout>, StoreError> {
        self.read_layout(connection, &self.texts().layout.read, consumer)
            .await
    }

    async fn lock_layout(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
    ) -> Result<Option<Layout>, StoreError> {
        self.read_layout(connection, &self.texts().layout.lock, consumer)
            .await
    }

    async fn set_layout(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        generation: Generation,
        step: LayoutStep,
    ) -> Result<i64, StoreError> {
        let (step, other, drained) = step.columns();
        let (epoch,): (i64,) = Statement::new(&self.texts().layout.set)
            .bind::<Text, _>(consumer)
            .bind::<Integer, _>(i32::try_from(generation.number).unwrap_or(i32::MAX))
            .bind::<SmallInt, _>(i16::from(generation.partitions))
            .bind::<Text, _>(step)
            .bind::<Nullable<SmallInt>, _>(other.map(i16::from))
            .bind::<BigInt, _>(drained)
            .returning::<(BigInt,)>()
            .row(connection, "change a consumer's layout")
            .await?;
        Ok(epoch)
    }

    async fn drained(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        fence: &Fence,
        epoch: i64,
    ) -> Result<bool, StoreError> {
        if !fence.resource.is_of(consumer) {
            return Ok(false);
        }
        let changed = Statement::new(&self.texts().layout.drained)
            .bind::<Text, _>(consumer)
            .bind::<BigInt, _>(epoch)
            .bind::<Text, _>(fence.resource.name())
            .bind::<SmallInt, _>(i16::from(fence.grant.number))
            .bind::<SqlUuid, _>(fence.owner.as_uuid())
            .bind::<BigInt, _>(fence.grant.epoch)
            .run(connection, "write down that a partition is drained")
            .await?;
        Ok(changed == 1)
    }

    async fn unwish(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        member: MemberId,
    ) -> Result<(), StoreError> {
        Statement::new(&self.texts().layout.unwish)
            .bind::<Text, _>(consumer)
            .bind::<SqlUuid, _>(member.as_uuid())
            .run(connection, "take a wish back")
            .await?;
        Ok(())
    }
}

fn number(partitions: i16) -> Result<u8, StoreError> {
    u8::try_from(partitions).map_err(|_| corrupt(format!("a layout of {partitions} partitions")))
}

fn corrupt(why: String) -> StoreError {
    StoreError::new(READ, StoreErrorKind::Corrupt, why)
}
