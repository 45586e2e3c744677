use std::collections::HashSet;
use std::time::Duration;

use diesel::sql_types::{BigInt, Binary, Nullable};
use diesel::{QueryResult, SqliteConnection};
use uuid::Uuid;

use super::connection::on_thread;
use super::row::corrupt;
use super::statement::{Sql, Value};
use super::{Connection, SqliteStore};
use crate::store::{Fence, Grant, LeaseStore, MemberId, Resource, StoreError};

/// Whether the fence's owner holds its lease now, in its epoch and within its time.
///
/// Nobody can take it before the transaction ends: one transaction writes at a time.
pub(super) fn holds(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    fence: &Fence,
) -> QueryResult<bool> {
    store
        .sql(
            "SELECT COUNT(*) FROM {posta}lease
             WHERE resource = ? AND number = ? AND owner = ? AND epoch = ? AND expires_at > {now}",
        )
        .bind(fence.resource.name())
        .bind(fence.grant.number)
        .bind(fence.owner.as_uuid())
        .bind(fence.grant.epoch)
        .one::<BigInt, i64>(connection)
        .map(|count| count == 1)
}

/// The lanes that the fences hold.
pub(super) fn held_lanes(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    fences: &[Fence],
) -> QueryResult<HashSet<u8>> {
    let fences: Vec<(u8, String, i64)> = fences
        .iter()
        .filter(|fence| fence.resource == Resource::Lanes)
        .map(|fence| {
            let owner = fence.owner.as_uuid().simple().to_string();
            (fence.grant.number, owner, fence.grant.epoch)
        })
        .collect();
    let lanes = store
        .sql(
            "SELECT lease.number FROM json_each(?) AS fence CROSS JOIN {posta}lease AS lease
                 ON lease.resource = ? AND lease.number = fence.value ->> 0
                     AND lease.owner = unhex(fence.value ->> 1) AND lease.epoch = fence.value ->> 2
                     AND lease.expires_at > {now}",
        )
        .bind(Value::json(&fences))
        .bind(Resource::Lanes.name())
        .rows::<BigInt, i64>(connection)?;
    Ok(lanes
        .into_iter()
        .filter_map(|lane| u8::try_from(lane).ok())
        .collect())
}

/// Whether the fence is of a partition of this consumer and its owner holds it now.
pub(super) fn holds_partition(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    consumer: &str,
    fence: &Fence,
) -> QueryResult<bool> {
    if fence.resource.is_of(consumer) {
        holds(store, connection, fence)
    } else {
        Ok(false)
    }
}

/// Runs a statement over a member's grants; how many it changed.
async fn of_grants(
    connection: &mut Connection,
    statement: Sql,
    operation: &'static str,
    resource: &Resource,
    member: MemberId,
    grants: &[Grant],
) -> Result<usize, StoreError> {
    let (resource, grants) = (resource.name(), grants.to_vec());
    on_thread(connection, operation, move |connection| {
        grants.iter().try_fold(0, |so_far, grant| {
            let changed = statement
                .bind(resource.as_str())
                .bind(grant.number)
                .bind(member.as_uuid())
                .bind(grant.epoch)
                .execute(connection)?;
            Ok(so_far + changed)
        })
    })
    .await
}

impl LeaseStore for SqliteStore {
    async fn join(
        &self,
        connection: &mut Connection,
        resource: &Resource,
        count: u8,
        member: MemberId,
        ttl: Duration,
    ) -> Result<Vec<MemberId>, StoreError> {
        let resource = resource.name();
        let known = self.sql("SELECT number FROM {posta}lease WHERE resource = ?");
        let make = self.sql("INSERT INTO {posta}lease (resource, number) VALUES (?, ?)");
        let join = self.sql(
            "INSERT INTO {posta}member (resource, member, expires_at) VALUES (?, ?, {now} + ?)
             ON CONFLICT (resource, member) DO UPDATE SET expires_at = excluded.expires_at",
        );
        let forget = self.sql(
            "DELETE FROM {posta}member WHERE resource = ? AND expires_at <= {now} AND member <> ?",
        );
        let members =
            self.sql("SELECT member FROM {posta}member WHERE resource = ? ORDER BY member");
        on_thread(connection, "join", move |connection| {
            let known = known
                .bind(resource.as_str())
                .rows::<BigInt, i64>(connection)?;
            for number in (0..count).filter(|number| !known.contains(&i64::from(*number))) {
                make.bind(resource.as_str())
                    .bind(number)
                    .execute(connection)?;
            }
            let id = member.as_uuid();
            join.bind(resource.as_str())
                .bind(id)
                .bind(ttl)
                .execute(connection)?;
            forget
                .bind(resource.as_str())
                .bind(id)
                .execute(connection)?;
            let members = members.bind(resource).rows::<Binary, Vec<u8>>(connection)?;
            members.iter().map(|member| member_of(member)).collect()
        })
        .await
    }

    async fn renew(
        &self,
        connection: &mut Connection,
        resource: &Resource,
        member: MemberId,
        ttl: Duration,
    ) -> Result<Vec<Grant>, StoreError> {
        let renew = self
            .sql(
                "UPDATE {posta}lease SET expires_at = {now} + ?
                 WHERE resource = ? AND owner = ? AND expires_at > {now} RETURNING number, epoch",
            )
            .bind(ttl)
            .bind(resource.name())
            .bind(member.as_uuid());
        on_thread(connection, "renew leases", |connection| {
            grants(renew.rows::<(BigInt, BigInt), (i64, i64)>(connection)?)
        })
        .await
    }

    async fn deserted(
        &self,
        connection: &mut Connection,
        resource: &Resource,
        count: u8,
        member: MemberId,
    ) -> Result<Vec<u8>, StoreError> {
        let deserted = self
            .sql(
                "SELECT number, 0 FROM {posta}lease
                 WHERE resource = ? AND number < ? AND owner <> ? AND expires_at <= {now} ORDER BY number",
            )
            .bind(resource.name())
            .bind(count)
            .bind(member.as_uuid());
        on_thread(connection, "look for deserted leases", |connection| {
            let rows = deserted.rows::<(BigInt, BigInt), (i64, i64)>(connection)?;
            Ok(grants(rows)?
                .into_iter()
                .map(|grant| grant.number)
                .collect())
        })
        .await
    }

    async fn acquire(
        &self,
        connection: &mut Connection,
        resource: &Resource,
        count: u8,
        member: MemberId,
        ttl: Duration,
        limit: usize,
    ) -> Result<Vec<Grant>, StoreError> {
        let acquire = self
            .sql(
                "UPDATE {posta}lease SET owner = ?, epoch = epoch + 1, expires_at = {now} + ?
                 WHERE (resource, number) IN (
                     SELECT resource, number FROM {posta}lease
                     WHERE resource = ? AND number < ? AND (owner IS NULL OR expires_at <= {now})
                     ORDER BY number LIMIT ?)
                 RETURNING number, epoch",
            )
            .bind(member.as_uuid())
            .bind(ttl)
            .bind(resource.name())
            .bind(count)
            .bind(limit);
        on_thread(connection, "acquire leases", |connection| {
            grants(acquire.rows::<(BigInt, BigInt), (i64, i64)>(connection)?)
        })
        .await
    }

    async fn give_back(
        &self,
        connection: &mut Connection,
        resource: &Resource,
        member: MemberId,
        grants: &[Grant],
    ) -> Result<usize, StoreError> {
        let free = self.sql(
            "UPDATE {posta}lease SET owner = NULL, expires_at = NULL
             WHERE resource = ? AND number = ? AND owner = ? AND epoch = ? AND expires_at > {now}",
        );
        of_grants(
            connection,
            free,
            "give leases back",
            resource,
            member,
            grants,
        )
        .await
    }

    async fn desert(
        &self,
        connection: &mut Connection,
        resource: &Resource,
        member: MemberId,
        grants: &[Grant],
    ) -> Result<usize, StoreError> {
        let desert = self.sql(
            "UPDATE {posta}lease SET expires_at = {now}
             WHERE resource = ? AND number = ? AND owner = ? AND epoch = ? AND expires_at > {now}",
        );
        of_grants(
            connection,
            desert,
            "desert leases",
            resource,
            member,
            grants,
        )
        .await
    }

    async fn leave(
        &self,
        connection: &mut Connection,
        resource: &Resource,
        member: MemberId,
    ) -> Result<(), StoreError> {
        let forget = self
            .sql("DELETE FROM {posta}member WHERE resource = ? AND member = ?")
            .bind(resource.name())
            .bind(member.as_uuid());
        let free = self
            .sql(
                "UPDATE {posta}lease SET owner = NULL, expires_at = NULL
                 WHERE resource = ? AND owner = ?",
            )
            .bind(resource.name())
            .bind(member.as_uuid());
        on_thread(connection, "leave", |connection| {
            forget.execute(connection)?;
            free.execute(connection)?;
            Ok(())
        })
        .await
    }

    async fn owners(
        &self,
        connection: &mut Connection,
        resource: &Resource,
    ) -> Result<Vec<(Grant, Option<MemberId>)>, StoreError> {
        let owners = self
            .sql(
                "SELECT number, epoch, CASE WHEN expires_at > {now} THEN owner END
                 FROM {posta}lease WHERE resource = ? ORDER BY number",
            )
            .bind(resource.name());
        on_thread(connection, "read who owns what", |connection| {
            owners
                .rows::<(BigInt, BigInt, Nullable<Binary>), (i64, i64, Option<Vec<u8>>)>(
                    connection,
                )?
                .into_iter()
                .map(|(number, epoch, owner)| {
                    let owner = owner.as_deref().map(member_of).transpose()?;
                    Ok((grant_of((number, epoch))?, owner))
                })
                .collect()
        })
        .await
    }
}

fn grants(rows: Vec<(i64, i64)>) -> QueryResult<Vec<Grant>> {
    let mut grants: Vec<Grant> = rows.into_iter().map(grant_of).collect::<QueryResult<_>>()?;
    grants.sort_unstable_by_key(|grant| grant.number);
    Ok(grants)
}

fn grant_of((number, epoch): (i64, i64)) -> QueryResult<Grant> {
    let number = u8::try_from(number).map_err(|_| corrupt("a lease's number is out of range"))?;
    Ok(Grant { number, epoch })
}

pub(super) fn member_of(bytes: &[u8]) -> QueryResult<MemberId> {
    let id = Uuid::from_slice(bytes).map_err(|_| corrupt("a member has not 16 bytes"))?;
    Ok(MemberId::from(id))
}
