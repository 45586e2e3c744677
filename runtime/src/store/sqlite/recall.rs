//! Messages that are replayed are taken back, from either table.

use diesel::sql_types::BigInt;
use diesel::{QueryResult, SqliteConnection};

use super::{SqliteStore, place, release};
use crate::store::{LetterId, Recall, Resource, partitions_prefix};

/// The row that a letter is replayed with, and whether a running process has claimed it. One that
/// drains is no member any more, but keeps its leases until it is done.
const HELD: &str = "SELECT r.position, r.claimed_by IS NOT NULL AND (
         EXISTS (SELECT 1 FROM {posta}member AS m
                 WHERE instr(m.resource, ?) = 1 AND m.member = r.claimed_by AND m.expires_at > {now})
         OR EXISTS (SELECT 1 FROM {posta}lease AS l
                    WHERE instr(l.resource, ?) = 1 AND l.owner = r.claimed_by AND l.expires_at > {now}))
     FROM {posta}retry AS r WHERE r.dead_letter = ? AND r.consumer = ? AND r.parked = 0";

/// The same of the outbox, whose rows are not claimed: one that could go out, while the owner of its
/// lane is alive, may be with the broker already.
const WAITING: &str = "SELECT o.position, o.slot, (o.held_until IS NULL OR o.held_until <= {now})
         AND EXISTS (
             SELECT 1 FROM {posta}lease AS l
             WHERE l.resource = ? AND l.number = o.slot AND l.owner IS NOT NULL AND l.expires_at > {now})
         AND NOT EXISTS (
             SELECT 1 FROM {posta}outbox AS h
             WHERE h.slot = o.slot AND h.ordering_key = o.ordering_key AND h.position < o.position
               AND h.held_until IS NOT NULL AND h.parked = 1)
     FROM {posta}outbox AS o WHERE o.dead_letter = ? AND o.parked = 0";

pub(super) fn held(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    consumer: &str,
    letter: LetterId,
    keep_place: bool,
) -> QueryResult<Recall> {
    // What its leases are called in all layouts, up to the number.
    let resource = partitions_prefix(consumer);
    let found = store
        .sql(HELD)
        .bind(resource.clone())
        .bind(resource)
        .bind(letter.0)
        .bind(consumer)
        .first::<(BigInt, BigInt), (i64, i64)>(connection)?;
    let Some((position, running)) = found else {
        return Ok(Recall::Gone);
    };
    if running == 1 {
        return Ok(Recall::Running);
    }
    if keep_place {
        place::park_held(store, connection, consumer, position, letter)?;
    } else {
        release::withdraw(store, connection, consumer, position)?;
    }
    Ok(Recall::Back)
}

pub(super) fn row(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    letter: LetterId,
    keep_place: bool,
) -> QueryResult<Recall> {
    let found = store
        .sql(WAITING)
        .bind(Resource::Lanes.name())
        .bind(letter.0)
        .first::<(BigInt, BigInt, BigInt), (i64, i64, i64)>(connection)?;
    let Some((position, slot, running)) = found else {
        return Ok(Recall::Gone);
    };
    if running == 1 {
        return Ok(Recall::Running);
    }
    if keep_place {
        let slot = u8::try_from(slot).unwrap_or_default();
        place::park(store, connection, (position, slot), letter)?;
    } else {
        store
            .sql("DELETE FROM {posta}outbox WHERE position = ?")
            .bind(position)
            .execute(connection)?;
    }
    Ok(Recall::Back)
}
