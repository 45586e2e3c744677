use std::time::Duration;

use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use diesel::{QueryResult, SqliteConnection};

use super::connection::on_thread;
use super::lease::{holds, member_of};
use super::row::{self, corrupt};
use super::statement::Sql;
use super::{Connection, SqliteStore};
use crate::store::{
    Attendance, Fence, Generation, Layout, LayoutStep, LayoutStore, MemberId, StoreError, Wish,
};

/// The statements that read a layout.
struct Reading {
    layout: Sql,
    wishes: Sql,
}

impl Reading {
    fn new(store: &SqliteStore) -> Self {
        Self {
            layout: store.sql(
                "SELECT generation, partitions, step, other, drained, epoch FROM {posta}layout WHERE consumer = ?",
            ),
            wishes: store.sql(
                "SELECT member, partitions, epoch FROM {posta}layout_wish
                 WHERE consumer = ? AND expires_at > {now} ORDER BY member",
            ),
        }
    }

    fn read(
        &self,
        connection: &mut SqliteConnection,
        consumer: &str,
    ) -> QueryResult<Option<Layout>> {
        let row = self.layout.bind(consumer).first::<(
            BigInt,
            BigInt,
            Text,
            Nullable<BigInt>,
            BigInt,
            BigInt,
        ), (i64, i64, String, Option<i64>, i64, i64)>(
            connection
        )?;
        let Some((generation, partitions, step, other, drained, epoch)) = row else {
            return Ok(None);
        };
        let other = other.map(number).transpose()?;
        let step = LayoutStep::of_columns(&step, other, drained)
            .ok_or_else(|| corrupt(format!("a layout is in the step {step:?}")))?;
        let wishes = self
            .wishes
            .bind(consumer)
            .rows::<(Binary, BigInt, BigInt), (Vec<u8>, i64, i64)>(connection)?;
        let wish = |(member, partitions, epoch): (Vec<u8>, i64, i64)| {
            Ok(Wish {
                member: member_of(&member)?,
                partitions: number(partitions)?,
                epoch,
            })
        };
        Ok(Some(Layout {
            generation: Generation {
                number: row::count(generation),
                partitions: number(partitions)?,
            },
            step,
            epoch,
            wishes: wishes.into_iter().map(wish).collect::<QueryResult<_>>()?,
        }))
    }
}

// One transaction writes at a time: whoever attends or locks has it locked already.
impl LayoutStore for SqliteStore {
    async fn attend(
        &self,
        connection: &mut Connection,
        consumer: &str,
        wish: Wish,
        ttl: Duration,
    ) -> Result<Attendance, StoreError> {
        let announce = self
            .sql(
                "INSERT INTO {posta}layout_wish (consumer, member, partitions, epoch, expires_at)
                 VALUES (?, ?, ?, ?, {now} + ?)
                 ON CONFLICT (consumer, member) DO UPDATE
                 SET partitions = excluded.partitions, epoch = excluded.epoch, expires_at = excluded.expires_at",
            )
            .bind(consumer)
            .bind(wish.member.as_uuid())
            .bind(wish.partitions)
            .bind(wish.epoch)
            .bind(ttl);
        let forget = self
            .sql("DELETE FROM {posta}layout_wish WHERE consumer = ? AND expires_at <= {now}")
            .bind(consumer);
        let provide = self
            .sql("INSERT INTO {posta}layout (consumer, partitions) VALUES (?, ?) ON CONFLICT DO NOTHING")
            .bind(consumer)
            .bind(wish.partitions);
        let (reading, consumer) = (Reading::new(self), consumer.to_owned());
        on_thread(connection, "attend a layout", move |connection| {
            provide.execute(connection)?;
            announce.execute(connection)?;
            forget.execute(connection)?;
            let layout = reading.read(connection, &consumer)?;
            let layout = layout.ok_or_else(|| corrupt("a layout was taken away"))?;
            Ok(Attendance {
                layout,
                settled: true,
            })
        })
        .await
    }

    async fn layout(
        &self,
        connection: &mut Connection,
        consumer: &str,
    ) -> Result<Option<Layout>, StoreError> {
        let (reading, consumer) = (Reading::new(self), consumer.to_owned());
        on_thread(connection, "read a layout", move |connection| {
            reading.read(connection, &consumer)
        })
        .await
    }

    async fn lock_layout(
        &self,
        connection: &mut Connection,
        consumer: &str,
    ) -> Result<Option<Layout>, StoreError> {
        self.layout(connection, consumer).await
    }

    async fn set_layout(
        &self,
        connection: &mut Connection,
        consumer: &str,
        generation: Generation,
        step: LayoutStep,
    ) -> Result<i64, StoreError> {
        let (step, other, drained) = step.columns();
        let set = self
            .sql(
                "UPDATE {posta}layout
                 SET generation = ?, partitions = ?, step = ?, other = ?, drained = ?, epoch = epoch + 1, changed_at = {now}
                 WHERE consumer = ? RETURNING epoch",
            )
            .bind(generation.number)
            .bind(generation.partitions)
            .bind(step)
            .bind(other.map(i64::from))
            .bind(drained)
            .bind(consumer);
        on_thread(connection, "change a layout", |connection| {
            set.one::<BigInt, i64>(connection)
        })
        .await
    }

    async fn drained(
        &self,
        connection: &mut Connection,
        consumer: &str,
        fence: &Fence,
        epoch: i64,
    ) -> Result<bool, StoreError> {
        if !fence.resource.is_of(consumer) {
            return Ok(false);
        }
        let drained = self
            .sql(
                "UPDATE {posta}layout SET drained = drained | (1 << ?)
                 WHERE consumer = ? AND epoch = ? AND step = 'draining'",
            )
            .bind(fence.grant.number)
            .bind(consumer)
            .bind(epoch);
        let (store, fence) = (self.clone(), fence.clone());
        on_thread(
            connection,
            "write down that a partition is drained",
            move |connection| {
                Ok(holds(&store, connection, &fence)? && drained.execute(connection)? == 1)
            },
        )
        .await
    }

    async fn unwish(
        &self,
        connection: &mut Connection,
        consumer: &str,
        member: MemberId,
    ) -> Result<(), StoreError> {
        let unwish = self
            .sql("DELETE FROM {posta}layout_wish WHERE consumer = ? AND member = ?")
            .bind(consumer)
            .bind(member.as_uuid());
        on_thread(connection, "take a wish back", |connection| {
            unwish.execute(connection).map(drop)
        })
        .await
    }
}

fn number(partitions: i64) -> QueryResult<u8> {
    u8::try_from(partitions).map_err(|_| corrupt(format!("a layout of {partitions} partitions")))
}
