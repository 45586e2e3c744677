use std::collections::HashSet;

use diesel::sql_types::{Array, BigInt, Bool, SmallInt, Text, Uuid as SqlUuid};
use diesel_async::AsyncPgConnection;
use futures_util::future::try_join;
use uuid::Uuid;

use super::PostgresStore;
use super::classify::failed;
use super::statement::{Statement, statements};
use crate::message::{MessageId, OrderingKey, Slot};
use crate::store::{Admission, Fence, InboxStore, StoreError, StoreErrorKind};

statements!(InboxTexts {
    // The ids come sorted, so two batches wait for each other in one direction only. An id that a
    // transaction still open has inserted is waited for: after its commit it is a duplicate, after
    // its rollback it is inserted here.
    insert = "
INSERT INTO {posta}inbox (consumer, message_id)
SELECT $1, id FROM unnest($2::uuid[]) AS id
ON CONFLICT DO NOTHING
RETURNING message_id";

    // A statement of its own, after the insert: under READ COMMITTED it sees what was committed
    // while the insert waited.
    fence_and_held = "
SELECT EXISTS (
           SELECT FROM {posta}lease
           WHERE resource = $1 AND number = $2 AND owner = $3 AND epoch = $4 AND expires_at > statement_timestamp()),
       ARRAY (
           SELECT k.key FROM unnest($6::smallint[], $7::text[]) AS k (slot, key)
           WHERE EXISTS (
               SELECT FROM {posta}retry r
               WHERE r.consumer = $5 AND r.slot = k.slot AND r.ordering_key = k.key))";

    handled = "
SELECT count(*) FROM {posta}inbox WHERE consumer = $1";
});

/// Whether the fence holds, and which of the keys are on hold.
type FenceAndHeld = (bool, Vec<String>);

impl InboxStore for PostgresStore {
    async fn admit(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        fence: &Fence,
        ids: &[MessageId],
        keys: &[OrderingKey],
    ) -> Result<Admission, StoreError> {
        const OPERATION: &str = "admit deliveries";
        if !fence.resource.is_of(consumer) {
            return Ok(Admission::LeaseLost);
        }
        let resource = fence.resource.name();
        let mut sorted: Vec<Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let insert = Statement::new(&self.texts().inbox.insert)
            .bind::<Text, _>(consumer)
            .bind::<Array<SqlUuid>, _>(sorted)
            .returning::<(SqlUuid,)>();
        let slots: Vec<i16> = keys
            .iter()
            .map(|key| i16::from(Slot::of_key(key).number()))
            .collect();
        let read = Statement::new(&self.texts().inbox.fence_and_held)
            .bind::<Text, _>(resource.as_str())
            .bind::<SmallInt, _>(i16::from(fence.grant.number))
            .bind::<SqlUuid, _>(fence.owner.as_uuid())
            .bind::<BigInt, _>(fence.grant.epoch)
            .bind::<Text, _>(consumer)
            .bind::<Array<SmallInt>, _>(slots)
            .bind::<Array<Text>, _>(keys.iter().map(OrderingKey::as_str).collect::<Vec<_>>())
            .returning::<(Bool, Array<Text>)>();

        // Both are sent before either is answered, in this order, which the server keeps.
        let result = {
            let connection = &*connection;
            try_join(insert.pipelined(connection), read.pipelined(connection)).await
        };
        let (fresh, answer): (Vec<(Uuid,)>, Vec<FenceAndHeld>) =
            result.map_err(|error| failed(connection, OPERATION, error))?;
        // A SELECT without FROM has one row; without it nothing is known to be owned.
        let (owned, held) = answer.into_iter().next().unwrap_or_default();
        if !owned {
            return Ok(Admission::LeaseLost);
        }
        let held = held
            .into_iter()
            .map(OrderingKey::new)
            .collect::<Result<HashSet<_>, _>>();
        Ok(Admission::Admitted {
            fresh: fresh.into_iter().map(|(id,)| MessageId::from(id)).collect(),
            held: held
                .map_err(|error| StoreError::new(OPERATION, StoreErrorKind::Corrupt, error))?,
        })
    }

    async fn handled(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
    ) -> Result<u64, StoreError> {
        let (handled,): (i64,) = Statement::new(&self.texts().inbox.handled)
            .bind::<Text, _>(consumer)
            .returning::<(BigInt,)>()
            .row(connection, "count the inbox")
            .await?;
        Ok(handled.unsigned_abs())
    }
}
