//! Which process runs a message of the retry table, so that one that kills processes is found.

use std::collections::HashSet;

use diesel::sql_types::BigInt;
use diesel::{QueryResult, SqliteConnection};

use super::statement::Value;
use super::{SqliteStore, row};
use crate::store::{Claim, MemberId};

/// Rows (a JSON list of positions) as this member finds them. A claim of its own is none that
/// another left behind.
///
/// Binds the member, the positions and the consumer.
const FOUND: &str = "SELECT r.position, r.claimed_by IS NOT NULL AND r.claimed_by <> ?, r.deaths
     FROM json_each(?) AS p CROSS JOIN {posta}retry AS r ON r.position = p.value
     WHERE r.consumer = ? AND r.parked = 0";

/// Claims rows together. What another process left behind stays as it was left: whether it died of
/// it is for [`alone`] to count.
pub(super) fn together(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    consumer: &str,
    positions: &[i64],
    member: MemberId,
) -> QueryResult<Vec<Claim>> {
    let mut seen = HashSet::with_capacity(positions.len());
    let positions: Vec<i64> = positions
        .iter()
        .copied()
        .filter(|position| seen.insert(*position))
        .collect();
    let claims = found(store, connection, consumer, &positions, member)?;
    // +consumer: found by position, not by a walk through all that the consumer has.
    store
        .sql(
            "UPDATE {posta}retry SET claimed_by = ?
             WHERE position IN (SELECT value FROM json_each(?)) AND +consumer = ? AND parked = 0
               AND claimed_by IS NULL",
        )
        .bind(member.as_uuid())
        .bind(Value::json(&positions))
        .bind(consumer)
        .execute(connection)?;
    Ok(claims)
}

/// Claims a row that is run alone, and counts the death of the process that left it behind.
pub(super) fn alone(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    consumer: &str,
    position: i64,
    member: MemberId,
) -> QueryResult<Option<Claim>> {
    let found = found(store, connection, consumer, &[position], member)?;
    let Some(mut claim) = found.into_iter().next() else {
        return Ok(None);
    };
    claim.deaths = claim.deaths.saturating_add(u32::from(claim.abandoned));
    store
        .sql("UPDATE {posta}retry SET claimed_by = ?, deaths = ? WHERE position = ?")
        .bind(member.as_uuid())
        .bind(claim.deaths)
        .bind(position)
        .execute(connection)?;
    Ok(Some(claim))
}

fn found(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    consumer: &str,
    positions: &[i64],
    member: MemberId,
) -> QueryResult<Vec<Claim>> {
    let rows = store
        .sql(FOUND)
        .bind(member.as_uuid())
        .bind(Value::json(positions))
        .bind(consumer)
        .rows::<(BigInt, BigInt, BigInt), (i64, i64, i64)>(connection)?;
    let claim = |(position, abandoned, deaths)| Claim {
        position,
        abandoned: abandoned == 1,
        deaths: row::count(deaths),
    };
    Ok(rows.into_iter().map(claim).collect())
}
