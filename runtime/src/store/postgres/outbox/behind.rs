//! Rows that wait behind a message of their key, moved out of the lane's way.
//!
//! A look at a lane goes through the rows that never failed, in order, and leaves out those whose
//! key waits. Behind one parked key there can be a hundred thousand; were they looked at in each
//! round, for as long as the key is parked, that key would delay all others of its lane. So a round
//! that finds many of them at a lane's front gives them a time of their own, `behind!()`, as if
//! they were on hold: then they are in `outbox_held` and no longer in `outbox_waiting`.
//!
//! Where a row is says nothing of whether it may go: it only decides where it is looked for. A row
//! that is behind goes back when no failed row of its key is before it any more: at once where its
//! head's end is settled ([`PostgresStore::let_follow`]), and else by a walk over the keys that
//! have such rows, which also finds those whose head was deleted by hand, or left while its
//! successors were on their way here. Until then it is to all other rows what any row on hold is:
//! none of its key passes it. Processes of version 1 see it so too.

use std::time::Duration;

use diesel::sql_types::{Array, BigInt, SmallInt, Text};
use diesel_async::AsyncPgConnection;

use super::numbers;
use super::texts::before;
use crate::message::Slot;
use crate::store::StoreError;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::statement::{Statement, statements};
use crate::store::walk::Part;

/// How many rows of a lane's front are looked at, and from how many on that wait they are in the
/// way. A poll walks over as many for nothing; to write a row twice costs what some twenty looks at
/// it do.
const FRONT: i64 = 64;
const CROWD: i64 = 16;
/// Rows that one round moves at most, either way: some ten milliseconds.
const STEP: i64 = 2_000;
/// How long to pause after a look that found nothing to do.
const PAUSE: Duration = Duration::from_millis(50);

/// The time of a row that waits behind another of its key: later than any hold ends, and not that
/// of a place. `0002_failure.sql` has the same.
macro_rules! behind {
    () => {
        "timestamptz '9999-12-30 00:00:00+00'"
    };
}
pub(in crate::store::postgres) use behind;

/// Whether the key of a row `o` waits so long that it is worth the while to move the row.
macro_rules! waits {
    () => {
        concat!(
            "EXISTS (
        SELECT ",
            before!("h", "o"),
            "
          AND h.held_until > statement_timestamp() + interval '5 seconds' OFFSET 0)"
        )
    };
}

/// Gives rows back what they were before.
macro_rules! forward {
    () => {
        "UPDATE {posta}outbox o SET held_until = NULL, attempts = 0, last_error = NULL
FROM here WHERE o.position = here.position"
    };
}

/// The first rows behind of each of these keys, locked if nobody else has them: `$keys` is a table
/// of slots and keys, `$limit` a number. The sums keep it to the key and the positions: by the time
/// alone, indexes would lead to all that is behind in a lane, or anywhere.
macro_rules! first_behind {
    ($keys:literal, $limit:literal) => {
        concat!(
            "SELECT position FROM {posta}outbox
    WHERE position = ANY (ARRAY (
        SELECT f.position
        FROM ",
            $keys,
            " AS k (slot, ordering_key) CROSS JOIN LATERAL (
            SELECT position FROM {posta}outbox
            WHERE slot = k.slot AND ordering_key = k.ordering_key AND held_until IS NOT NULL
              AND held_until + interval '0' = ",
            behind!(),
            "
            ORDER BY position LIMIT ",
            $limit,
            "
        ) f
        LIMIT ",
            $limit,
            "
    )) AND held_until + interval '0' = ",
            behind!(),
            "
    FOR UPDATE SKIP LOCKED"
        )
    };
}

statements!(BehindTexts {
    // The lanes whose fronts are full of rows that wait. A lane without a long hold is not looked
    // at; the order keeps that to `outbox_due`, also where the planner thinks that all rows are of
    // one lane.
    crowded = concat!("
WITH lane AS MATERIALIZED (
    SELECT l.slot FROM unnest($1::smallint[]) AS l (slot)
    WHERE EXISTS (
        SELECT FROM {posta}outbox h
        WHERE h.slot = l.slot AND h.held_until > statement_timestamp() + interval '5 seconds'
        ORDER BY h.held_until LIMIT 1 OFFSET 0)
)
SELECT lane.slot
FROM lane CROSS JOIN LATERAL (
    SELECT o.slot, o.ordering_key, o.position FROM {posta}outbox o
    WHERE o.slot = lane.slot AND o.held_until IS NULL
    ORDER BY o.position + 0 LIMIT $2
) o
WHERE ", waits!(), "
GROUP BY lane.slot HAVING count(*) >= $3");

    // No row is waited for: it is moved another time.
    move_behind = concat!("
WITH front AS MATERIALIZED (
    SELECT o.position
    FROM unnest($1::smallint[]) AS lane (slot) CROSS JOIN LATERAL (
        SELECT o.slot, o.ordering_key, o.position FROM {posta}outbox o
        WHERE o.slot = lane.slot AND o.held_until IS NULL
        ORDER BY o.position + 0 LIMIT $2 / cardinality($1)
    ) o
    WHERE ", waits!(), "
), here AS MATERIALIZED (
    SELECT position FROM {posta}outbox
    WHERE position = ANY (ARRAY (SELECT position FROM front)) AND held_until + interval '0' IS NULL
    FOR UPDATE SKIP LOCKED
)
UPDATE {posta}outbox o
SET held_until = ", behind!(), ", attempts = 1, last_error = 'waits behind an earlier message of its key'
FROM here WHERE o.position = here.position");

    // One step in `outbox_behind` a key, however many rows it has there.
    walk = concat!("
WITH RECURSIVE waiting AS (
    SELECT n.slot, n.ordering_key, n.position
    FROM unnest($1::smallint[]) AS lane (slot) CROSS JOIN LATERAL (
        SELECT slot, ordering_key, position FROM {posta}outbox
        WHERE slot = lane.slot AND held_until = ", behind!(), "
        ORDER BY ordering_key, position LIMIT 1
    ) n
    UNION ALL
    SELECT n.slot, n.ordering_key, n.position
    FROM waiting w CROSS JOIN LATERAL (
        SELECT slot, ordering_key, position FROM {posta}outbox
        WHERE slot = w.slot AND held_until = ", behind!(), " AND ordering_key > w.ordering_key
        ORDER BY ordering_key, position LIMIT 1
    ) n
), free AS MATERIALIZED (
    SELECT w.slot, w.ordering_key FROM waiting w
    WHERE NOT EXISTS (
        SELECT ", before!("h", "w"), "
          AND h.held_until IS NOT NULL
        OFFSET 0)
), here AS MATERIALIZED (
    ", first_behind!("free", "$2"), "
), moved AS (
    ", forward!(), "
    RETURNING o.position
)
SELECT (SELECT count(*) FROM waiting), (SELECT count(*) FROM moved)");

    let_follow = concat!("
WITH here AS MATERIALIZED (
    ", first_behind!("unnest($1::smallint[], $2::text[])", "$3"), "
)
", forward!());
});

const MOVE: &str = "move rows that wait behind others";

/// What has moved something may have more to move.
fn pause_after(moved: u64) -> Duration {
    if moved > 0 { Duration::ZERO } else { PAUSE }
}

impl PostgresStore {
    /// Moves rows that wait out of the lanes' way, and back those that need not wait any more; of
    /// either some, when there are many.
    pub(super) async fn sort_behind(
        &self,
        connection: &mut AsyncPgConnection,
        lanes: &[Slot],
    ) -> Result<(), StoreError> {
        let texts = &self.texts().outbox_behind;
        if let Ok(walk) = self.walks().begin(Part::Behind(lanes.to_vec())) {
            let (steps, moved): (i64, i64) = Statement::new(&texts.walk)
                .bind::<Array<SmallInt>, _>(numbers(lanes))
                .bind::<BigInt, _>(STEP)
                .returning::<(BigInt, BigInt)>()
                .front_rows(connection, MOVE)
                .await?
                .pop()
                .unwrap_or_default();
            let (steps, moved) = (steps.unsigned_abs(), moved.unsigned_abs());
            walk.end_with(steps.saturating_sub(moved), pause_after(moved));
        }
        if let Ok(look) = self.walks().begin(Part::Front(lanes.to_vec())) {
            let crowded: Vec<(i16,)> = Statement::new(&texts.crowded)
                .bind::<Array<SmallInt>, _>(numbers(lanes))
                .bind::<BigInt, _>(FRONT)
                .bind::<BigInt, _>(CROWD)
                .returning::<(SmallInt,)>()
                .front_rows(connection, MOVE)
                .await?;
            let mut moved = 0;
            if !crowded.is_empty() {
                let crowded: Vec<i16> = crowded.into_iter().map(|(slot,)| slot).collect();
                moved = Statement::new(&texts.move_behind)
                    .bind::<Array<SmallInt>, _>(crowded)
                    .bind::<BigInt, _>(STEP)
                    .run(connection, MOVE)
                    .await?;
            }
            look.end_with(0, pause_after(moved as u64));
        }
        Ok(())
    }

    /// Lets the first rows behind of these keys go on, since something before them has left. If not
    /// all of it has, they wait where they were before.
    pub(super) async fn let_follow(
        &self,
        connection: &mut AsyncPgConnection,
        keys: impl Iterator<Item = (i16, String)>,
        operation: &'static str,
    ) -> Result<(), StoreError> {
        let (slots, keys): (Vec<i16>, Vec<String>) = keys.unzip();
        if keys.is_empty() {
            return Ok(());
        }
        Statement::new(&self.texts().outbox_behind.let_follow)
            .bind::<Array<SmallInt>, _>(slots)
            .bind::<Array<Text>, _>(keys)
            .bind::<BigInt, _>(STEP)
            .run(connection, operation)
            .await?;
        Ok(())
    }
}
