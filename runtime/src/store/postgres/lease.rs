use std::time::Duration;

use diesel::sql_types::{Array, BigInt, Nullable, SmallInt, Text, Uuid as SqlUuid};
use diesel_async::AsyncPgConnection;
use uuid::Uuid;

use super::PostgresStore;
use super::duration::micros;
use super::statement::{Statement, statements};
use crate::store::{Grant, LeaseStore, MemberId, Resource, StoreError, StoreErrorKind};

// All times are the instant at which the server got the statement: later than the moment from which
// the owner counts its lease's time, so an owner always stops before the database could give the
// lease away.
statements!(LeaseTexts {
    // A process that is paused in the middle of a tick would keep the rows of its leases locked, and
    // nobody could take them: the server ends such a transaction after the time of a lease, or 10 s
    // if that is longer: a machine that is only slow may take some of it between two statements.
    join = "
INSERT INTO {posta}member (resource, member, expires_at)
VALUES ($1, $2, statement_timestamp() + $3 * interval '1 microsecond')
ON CONFLICT (resource, member) DO UPDATE SET expires_at = excluded.expires_at
RETURNING set_config('idle_in_transaction_session_timeout', greatest($3 / 1000, 10000)::text, true)";

    // Rows that another member forgets at the same time are skipped: two members that take each
    // other for dead must not wait for each other's rows.
    forget = "
DELETE FROM {posta}member WHERE (resource, member) IN (
    SELECT resource, member FROM {posta}member
    WHERE resource = $1 AND expires_at <= statement_timestamp()
    ORDER BY member FOR UPDATE SKIP LOCKED)";

    // Read first: after the first process's first call there is nothing to write.
    provide = "
INSERT INTO {posta}lease (resource, number)
SELECT $1, n FROM generate_series(0, $2::smallint - 1) AS n
WHERE NOT EXISTS (SELECT FROM {posta}lease l WHERE l.resource = $1 AND l.number = n)
ORDER BY n
ON CONFLICT DO NOTHING";

    members = "
SELECT member FROM {posta}member
WHERE resource = $1 AND expires_at > statement_timestamp() ORDER BY member";

    renew = "
UPDATE {posta}lease
SET expires_at = statement_timestamp() + $3 * interval '1 microsecond'
WHERE resource = $1 AND owner = $2 AND expires_at > statement_timestamp()
RETURNING number, epoch,
    set_config('idle_in_transaction_session_timeout', greatest($3 / 1000, 10000)::text, true)";

    // SKIP LOCKED: what another member is just taking is not waited for. The lock re-reads the row,
    // so none is taken twice.
    deserted = "
SELECT number FROM {posta}lease
WHERE resource = $1 AND number < $2 AND owner <> $3 AND expires_at <= statement_timestamp() ORDER BY number";

    acquire = "
WITH free AS (
    SELECT number FROM {posta}lease
    WHERE resource = $1 AND number < $2 AND (owner IS NULL OR expires_at <= statement_timestamp())
    ORDER BY number LIMIT $3
    FOR UPDATE SKIP LOCKED
)
UPDATE {posta}lease l
SET owner = $4, epoch = l.epoch + 1, expires_at = statement_timestamp() + $5 * interval '1 microsecond'
FROM free WHERE l.resource = $1 AND l.number = free.number
RETURNING l.number, l.epoch";

    give_back = "
UPDATE {posta}lease l SET owner = NULL, expires_at = NULL
FROM unnest($3::smallint[], $4::bigint[]) AS g (number, epoch)
WHERE l.resource = $1 AND l.owner = $2 AND l.number = g.number AND l.epoch = g.epoch";

    desert = "
UPDATE {posta}lease l SET expires_at = statement_timestamp()
FROM unnest($3::smallint[], $4::bigint[]) AS g (number, epoch)
WHERE l.resource = $1 AND l.owner = $2 AND l.number = g.number AND l.epoch = g.epoch
    AND l.expires_at > statement_timestamp()";

    leave = "
DELETE FROM {posta}member WHERE resource = $1 AND member = $2";

    free = "
UPDATE {posta}lease SET owner = NULL, expires_at = NULL WHERE resource = $1 AND owner = $2";

    owners = "
SELECT number, epoch, CASE WHEN expires_at > statement_timestamp() THEN owner END
FROM {posta}lease WHERE resource = $1 ORDER BY number";
});

/// Runs a statement over a member's grants; how many it changed.
async fn of_grants(
    connection: &mut AsyncPgConnection,
    text: &str,
    operation: &'static str,
    resource: &Resource,
    member: MemberId,
    grants: &[Grant],
) -> Result<usize, StoreError> {
    if grants.is_empty() {
        return Ok(0);
    }
    let numbers: Vec<i16> = grants.iter().map(|grant| i16::from(grant.number)).collect();
    let epochs: Vec<i64> = grants.iter().map(|grant| grant.epoch).collect();
    Statement::new(text)
        .bind::<Text, _>(resource.name())
        .bind::<SqlUuid, _>(member.as_uuid())
        .bind::<Array<SmallInt>, _>(numbers)
        .bind::<Array<BigInt>, _>(epochs)
        .run(connection, operation)
        .await
}

impl LeaseStore for PostgresStore {
    async fn join(
        &self,
        connection: &mut AsyncPgConnection,
        resource: &Resource,
        count: u8,
        member: MemberId,
        ttl: Duration,
    ) -> Result<Vec<MemberId>, StoreError> {
        const OPERATION: &str = "join those who share leases";
        let (texts, name) = (&self.texts().lease, resource.name());
        Statement::new(&texts.join)
            .bind::<Text, _>(name.as_str())
            .bind::<SqlUuid, _>(member.as_uuid())
            .bind::<BigInt, _>(micros(ttl))
            .returning::<(Text,)>()
            .rows::<(String,)>(connection, OPERATION)
            .await?;
        Statement::new(&texts.forget)
            .bind::<Text, _>(name.as_str())
            .run(connection, OPERATION)
            .await?;
        Statement::new(&texts.provide)
            .bind::<Text, _>(name.as_str())
            .bind::<SmallInt, _>(i16::from(count))
            .run(connection, OPERATION)
            .await?;
        let mut members: Vec<MemberId> = Statement::new(&texts.members)
            .bind::<Text, _>(name.as_str())
            .returning::<(SqlUuid,)>()
            .rows::<(Uuid,)>(connection, OPERATION)
            .await?
            .into_iter()
            .map(|(member,)| MemberId::from(member))
            .collect();
        members.sort_unstable();
        Ok(members)
    }

    async fn renew(
        &self,
        connection: &mut AsyncPgConnection,
        resource: &Resource,
        member: MemberId,
        ttl: Duration,
    ) -> Result<Vec<Grant>, StoreError> {
        const OPERATION: &str = "renew leases";
        let rows = Statement::new(&self.texts().lease.renew)
            .bind::<Text, _>(resource.name())
            .bind::<SqlUuid, _>(member.as_uuid())
            .bind::<BigInt, _>(micros(ttl))
            .returning::<(SmallInt, BigInt, Text)>()
            .rows::<(i16, i64, String)>(connection, OPERATION)
            .await?
            .into_iter()
            .map(|(number, epoch, _)| (number, epoch))
            .collect();
        grants(rows, OPERATION)
    }

    async fn deserted(
        &self,
        connection: &mut AsyncPgConnection,
        resource: &Resource,
        count: u8,
        member: MemberId,
    ) -> Result<Vec<u8>, StoreError> {
        const OPERATION: &str = "look for deserted leases";
        let rows = Statement::new(&self.texts().lease.deserted)
            .bind::<Text, _>(resource.name())
            .bind::<SmallInt, _>(i16::from(count))
            .bind::<SqlUuid, _>(member.as_uuid())
            .returning::<SmallInt>()
            .rows(connection, OPERATION)
            .await?;
        let grants = grants(
            rows.into_iter().map(|number: i16| (number, 0)).collect(),
            OPERATION,
        )?;
        Ok(grants.into_iter().map(|grant| grant.number).collect())
    }

    async fn acquire(
        &self,
        connection: &mut AsyncPgConnection,
        resource: &Resource,
        count: u8,
        member: MemberId,
        ttl: Duration,
        limit: usize,
    ) -> Result<Vec<Grant>, StoreError> {
        const OPERATION: &str = "acquire leases";
        let rows = Statement::new(&self.texts().lease.acquire)
            .bind::<Text, _>(resource.name())
            .bind::<SmallInt, _>(i16::from(count))
            .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX))
            .bind::<SqlUuid, _>(member.as_uuid())
            .bind::<BigInt, _>(micros(ttl))
            .returning::<(SmallInt, BigInt)>()
            .rows(connection, OPERATION)
            .await?;
        grants(rows, OPERATION)
    }

    async fn give_back(
        &self,
        connection: &mut AsyncPgConnection,
        resource: &Resource,
        member: MemberId,
        grants: &[Grant],
    ) -> Result<usize, StoreError> {
        let text = &self.texts().lease.give_back;
        of_grants(
            connection,
            text,
            "give leases back",
            resource,
            member,
            grants,
        )
        .await
    }

    async fn desert(
        &self,
        connection: &mut AsyncPgConnection,
        resource: &Resource,
        member: MemberId,
        grants: &[Grant],
    ) -> Result<usize, StoreError> {
        let text = &self.texts().lease.desert;
        of_grants(connection, text, "desert leases", resource, member, grants).await
    }

    async fn leave(
        &self,
        connection: &mut AsyncPgConnection,
        resource: &Resource,
        member: MemberId,
    ) -> Result<(), StoreError> {
        for text in [&self.texts().lease.leave, &self.texts().lease.free] {
            Statement::new(text)
                .bind::<Text, _>(resource.name())
                .bind::<SqlUuid, _>(member.as_uuid())
                .run(connection, "leave those who share leases")
                .await?;
        }
        Ok(())
    }

    async fn owners(
        &self,
        connection: &mut AsyncPgConnection,
        resource: &Resource,
    ) -> Result<Vec<(Grant, Option<MemberId>)>, StoreError> {
        const OPERATION: &str = "read who owns leases";
        let rows: Vec<(i16, i64, Option<Uuid>)> = Statement::new(&self.texts().lease.owners)
            .bind::<Text, _>(resource.name())
            .returning::<(SmallInt, BigInt, Nullable<SqlUuid>)>()
            .rows(connection, OPERATION)
            .await?;
        rows.into_iter()
            .map(|(number, epoch, owner)| {
                Ok((
                    grant((number, epoch), OPERATION)?,
                    owner.map(MemberId::from),
                ))
            })
            .collect()
    }
}

fn grants(rows: Vec<(i16, i64)>, operation: &'static str) -> Result<Vec<Grant>, StoreError> {
    let mut grants = rows
        .into_iter()
        .map(|row| grant(row, operation))
        .collect::<Result<Vec<_>, _>>()?;
    grants.sort_unstable_by_key(|grant| grant.number);
    Ok(grants)
}

fn grant((number, epoch): (i16, i64), operation: &'static str) -> Result<Grant, StoreError> {
    let number = u8::try_from(number).map_err(|_| {
        let why = format!("a lease has the number {number}");
        StoreError::new(operation, StoreErrorKind::Corrupt, why)
    })?;
    Ok(Grant { number, epoch })
}
