//! Rows of the outbox that wait behind a message of their key, moved out of the lane's way.
//!
//! A look at a lane goes through the rows that never failed, in order, and leaves out those whose
//! key waits. Behind one parked key there can be a hundred thousand; were they looked at in each
//! round, for as long as the key is parked, that key would delay all others of its lane. So a round
//! that finds many of them at a lane's front gives them a time of their own, `{behind}`, as if they
//! were on hold: then they are in `outbox_held` and no longer in `outbox_lane`.
//!
//! Where a row is says nothing of whether it may go: it only decides where it is looked for. A row
//! that is behind goes back when no failed row of its key is before it any more: at once where its
//! head's end is settled ([`let_follow`]), and else by a walk over the keys that have such rows,
//! which also finds those whose head was deleted by hand. Until then it is to all other rows what
//! any row on hold is: none of its key passes it. Processes of version 1 see it so too.

use std::time::Duration;

use diesel::sql_types::{BigInt, Binary, Nullable};
use diesel::{QueryResult, SqliteConnection};

use super::SqliteStore;
use super::row;
use super::statement::Value;
use crate::message::Slot;
use crate::store::walk::Part;

/// How many rows of a lane's front are looked at, and from how many on that wait they are in the
/// way. A look walks over as many for nothing; to write a row twice costs what some twenty looks at
/// it do.
const FRONT: usize = 64;
const CROWD: usize = 16;
/// Rows that one round moves at most, either way: some ten milliseconds.
const STEP: usize = 2_000;
/// A hold that ends before is not worth the while.
const HOLD_MIN: Duration = Duration::from_secs(5);
/// How long to pause after a look that found nothing to do.
const PAUSE: Duration = Duration::from_millis(50);

/// The lanes whose fronts are full of rows that wait. A lane without a long hold is not looked at.
///
/// Binds the lanes (as JSON), [`HOLD_MIN`], [`FRONT`], [`HOLD_MIN`], and [`CROWD`].
const CROWDED: &str = "SELECT lane.value FROM json_each(?) AS lane
     WHERE EXISTS (SELECT 1 FROM {posta}outbox WHERE slot = lane.value AND held_until > {now} + ?)
       AND (SELECT COUNT(*) FROM (
                SELECT slot, ordering_key, position FROM {posta}outbox
                WHERE slot = lane.value AND held_until IS NULL ORDER BY position LIMIT ?) AS o
            WHERE EXISTS (
                SELECT 1 FROM {posta}outbox AS h
                WHERE h.slot = o.slot AND h.ordering_key = o.ordering_key AND h.position < o.position
                  AND h.held_until > {now} + ?)) >= ?";

/// Binds the lanes (as JSON), how many rows of each to look at, and [`HOLD_MIN`].
const MOVE_BEHIND: &str = "UPDATE {posta}outbox
     SET held_until = {behind}, attempts = 1, last_error = 'waits behind an earlier message of its key'
     WHERE position IN (
         SELECT o.position FROM json_each(?) AS lane CROSS JOIN {posta}outbox AS o ON o.position IN (
             SELECT position FROM {posta}outbox
             WHERE slot = lane.value AND held_until IS NULL ORDER BY position LIMIT ?)
         WHERE EXISTS (
             SELECT 1 FROM {posta}outbox AS h
             WHERE h.slot = o.slot AND h.ordering_key = o.ordering_key AND h.position < o.position
               AND h.held_until > {now} + ?))";

/// The keys that have rows behind, one step in `outbox_behind` a key, however many rows it has
/// there; and those of them without a failed row before.
///
/// Binds the lanes (as JSON).
const WALK: &str = "WITH RECURSIVE waiting (slot, ordering_key) AS (
         SELECT lane.value, (
             SELECT MIN(ordering_key) FROM {posta}outbox WHERE slot = lane.value AND held_until = {behind})
         FROM json_each(?) AS lane
         UNION ALL
         SELECT w.slot, (
             SELECT MIN(ordering_key) FROM {posta}outbox
             WHERE slot = w.slot AND held_until = {behind} AND ordering_key > w.ordering_key)
         FROM waiting AS w WHERE w.ordering_key IS NOT NULL
     ), key (slot, ordering_key, free) AS (
         SELECT w.slot, w.ordering_key, (
             SELECT h.held_until = {behind} FROM {posta}outbox AS h
             WHERE h.slot = w.slot AND h.ordering_key = w.ordering_key AND h.held_until IS NOT NULL
             ORDER BY h.position LIMIT 1)
         FROM waiting AS w WHERE w.ordering_key IS NOT NULL)";

/// Gives rows back what they were before.
const FORWARD: &str = "UPDATE {posta}outbox SET held_until = NULL, attempts = 0, last_error = NULL";

/// The first rows behind of a key, of which come slot, key and limit. By key: the time alone would
/// lead to all that is behind in a lane.
const FIRST: &str = "SELECT position FROM {posta}outbox INDEXED BY {posta}outbox_behind
     WHERE slot = {slot} AND ordering_key = {key} AND held_until = {behind} ORDER BY position LIMIT ?";

/// Moves rows that wait out of the lanes' way, and back those that need not wait any more; of either
/// some, when there are many.
pub(super) fn sort(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    lanes: &[Slot],
) -> QueryResult<()> {
    let numbers = Value::json(&lanes.iter().map(|lane| lane.number()).collect::<Vec<u8>>());
    if let Ok(walk) = store.walks().begin(Part::Behind(lanes.to_vec())) {
        let (steps, moved) = move_back(store, connection, &numbers)?;
        walk.end_with(steps.saturating_sub(moved), pause_after(moved));
    }
    if let Ok(look) = store.walks().begin(Part::Front(lanes.to_vec())) {
        let moved = move_behind(store, connection, &numbers)?;
        look.end_with(0, pause_after(moved));
    }
    Ok(())
}

/// What has moved something may have more to move.
fn pause_after(moved: u64) -> Duration {
    if moved > 0 { Duration::ZERO } else { PAUSE }
}

/// How many keys have rows behind, and how many rows have gone back.
fn move_back(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    lanes: &Value,
) -> QueryResult<(u64, u64)> {
    let (steps, free) = store
        .sql(&format!(
            "{WALK} SELECT COUNT(*), COUNT(*) FILTER (WHERE free) FROM key"
        ))
        .bind(lanes.clone())
        .one::<(BigInt, BigInt), (i64, i64)>(connection)?;
    let steps = row::number(steps);
    if free == 0 {
        return Ok((steps, 0));
    }
    let first = FIRST
        .replace("{slot}", "key.slot")
        .replace("{key}", "key.ordering_key");
    let moved = store
        .sql(&format!(
            "{WALK} {FORWARD} WHERE position IN (
                 SELECT f.position FROM key CROSS JOIN {{posta}}outbox AS f ON f.position IN ({first})
                 WHERE key.free LIMIT ?)"
        ))
        .bind(lanes.clone())
        .bind(STEP)
        .bind(STEP)
        .execute(connection)?;
    Ok((steps, moved as u64))
}

/// How many rows have been moved out of the way.
fn move_behind(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    lanes: &Value,
) -> QueryResult<u64> {
    let crowded = store
        .sql(CROWDED)
        .bind(lanes.clone())
        .bind(HOLD_MIN)
        .bind(FRONT)
        .bind(HOLD_MIN)
        .bind(CROWD)
        .rows::<BigInt, i64>(connection)?;
    if crowded.is_empty() {
        return Ok(0);
    }
    let moved = store
        .sql(MOVE_BEHIND)
        .bind(Value::json(&crowded))
        .bind(STEP / crowded.len())
        .bind(HOLD_MIN)
        .execute(connection)?;
    Ok(moved as u64)
}

/// A row that leaves, as it is returned: its slot, and its key's bytes if others may have waited
/// for it.
pub(super) type LeftTypes = (BigInt, Nullable<Binary>);
pub(super) type Left = (i64, Option<Vec<u8>>);

/// Lets the first rows behind go on, since something before them has left. If not all of it has,
/// they wait where they were before.
pub(super) fn let_follow(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    left: impl Iterator<Item = Left>,
) -> QueryResult<()> {
    let first = FIRST.replace("{slot}", "?").replace("{key}", "?");
    let follow = store.sql(&format!("{FORWARD} WHERE position IN ({first})"));
    let mut room = STEP;
    for (slot, key) in left {
        // Nobody waits behind a key that is no text.
        let Some(Ok(key)) = key.map(String::from_utf8) else {
            continue;
        };
        let follow = follow.bind(slot).bind(key).bind(room);
        room = room.saturating_sub(follow.execute(connection)?);
        if room == 0 {
            break;
        }
    }
    Ok(())
}
