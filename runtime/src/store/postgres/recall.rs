//! Messages that are replayed are taken back, from either table.

use diesel::sql_types::{BigInt, Bool, Text};
use diesel_async::AsyncPgConnection;

use super::PostgresStore;
use super::statement::{Statement, never, statements};
use crate::store::{LetterId, Recall, Resource, StoreError, partitions_prefix};

const OPERATION: &str = "take a replayed message back";

statements!(RecallTexts {
    // SKIP LOCKED: whoever has the row locked may be about to lock the letter, which the caller has;
    // so nobody waits here. Whoever runs a row has claimed it before; one that drains is no member
    // any more, but keeps its leases until it is done. $3 is what the leases of the consumer are
    // called in all layouts, up to the number.
    held = "
SELECT r.position, r.claimed_by IS NOT NULL AND (
    EXISTS (SELECT FROM {posta}member m
            WHERE starts_with(m.resource, $3) AND m.member = r.claimed_by AND m.expires_at > statement_timestamp())
    OR EXISTS (SELECT FROM {posta}lease l
               WHERE starts_with(l.resource, $3) AND l.owner = r.claimed_by AND l.expires_at > statement_timestamp()))
FROM {posta}retry r WHERE r.consumer = $1 AND r.dead_letter = $2 AND NOT r.parked
FOR UPDATE OF r SKIP LOCKED";

    held_is_there = "
SELECT EXISTS (SELECT FROM {posta}retry WHERE consumer = $1 AND dead_letter = $2 AND NOT parked)";

    // As `park` and `unpark` of the retry table have it.
    park_held = concat!("
UPDATE {posta}retry SET parked = true, due_at = ", never!(), ", payload = '', claimed_by = NULL
WHERE position = $1");

    // Rows of the outbox are not claimed. One that could go out, while the owner of its lane is
    // alive, may be with the broker already.
    waiting = "
SELECT o.position, (o.held_until IS NULL OR o.held_until <= statement_timestamp())
    AND EXISTS (
        SELECT FROM {posta}lease l
        WHERE l.resource = $2 AND l.number = o.slot AND l.owner IS NOT NULL AND l.expires_at > statement_timestamp())
    AND NOT EXISTS (
        SELECT FROM {posta}outbox h
        WHERE h.slot = o.slot AND h.ordering_key = o.ordering_key AND h.position < o.position
          AND h.held_until IS NOT NULL AND h.parked)
FROM {posta}outbox o WHERE o.dead_letter = $1 AND NOT o.parked
FOR UPDATE OF o SKIP LOCKED";

    waiting_is_there = "
SELECT EXISTS (SELECT FROM {posta}outbox WHERE dead_letter = $1 AND NOT parked)";

    park = concat!("
UPDATE {posta}outbox
SET parked = true, held_until = ", never!(), ", payload = '', attempts = greatest(attempts, 1),
    last_error = coalesce(last_error, 'dead letter ' || dead_letter), failed_at = coalesce(failed_at, statement_timestamp())
WHERE position = $1");

    remove = "
DELETE FROM {posta}outbox WHERE position = $1";
});

impl PostgresStore {
    /// Finds the row of the retry table that a letter is replayed with, and locks it; where it is,
    /// or why it stays.
    pub(super) async fn find_held(
        &self,
        connection: &mut AsyncPgConnection,
        consumer: &str,
        letter: LetterId,
    ) -> Result<Result<i64, Recall>, StoreError> {
        let texts = &self.texts().recall;
        let found: Vec<(i64, bool)> = Statement::new(&texts.held)
            .bind::<Text, _>(consumer)
            .bind::<BigInt, _>(letter.0)
            .bind::<Text, _>(partitions_prefix(consumer))
            .returning::<(BigInt, Bool)>()
            .rows(connection, OPERATION)
            .await?;
        if let Some(found) = found.into_iter().next() {
            return Ok(free(found));
        }
        let there = Statement::new(&texts.held_is_there)
            .bind::<Text, _>(consumer)
            .bind::<BigInt, _>(letter.0);
        Ok(Err(not_locked(connection, there).await?))
    }

    pub(super) async fn park_recalled(
        &self,
        connection: &mut AsyncPgConnection,
        position: i64,
    ) -> Result<(), StoreError> {
        at(&self.texts().recall.park_held, position)
            .run(connection, OPERATION)
            .await?;
        Ok(())
    }

    /// Takes a row of the outbox back.
    pub(super) async fn recall_row(
        &self,
        connection: &mut AsyncPgConnection,
        letter: LetterId,
        place: bool,
    ) -> Result<Recall, StoreError> {
        let texts = &self.texts().recall;
        let found: Vec<(i64, bool)> = Statement::new(&texts.waiting)
            .bind::<BigInt, _>(letter.0)
            .bind::<Text, _>(Resource::Lanes.name())
            .returning::<(BigInt, Bool)>()
            .rows(connection, OPERATION)
            .await?;
        let Some(found) = found.into_iter().next() else {
            let there = Statement::new(&texts.waiting_is_there).bind::<BigInt, _>(letter.0);
            return not_locked(connection, there).await;
        };
        let position = match free(found) {
            Ok(position) => position,
            Err(recall) => return Ok(recall),
        };
        let text = if place { &texts.park } else { &texts.remove };
        at(text, position).run(connection, OPERATION).await?;
        Ok(Recall::Back)
    }
}

fn at(text: &str, position: i64) -> Statement<'_> {
    Statement::new(text).bind::<BigInt, _>(position)
}

fn free((position, running): (i64, bool)) -> Result<i64, Recall> {
    if running {
        Err(Recall::Running)
    } else {
        Ok(position)
    }
}

/// Why no row could be locked: somebody is at it, or it is not there.
async fn not_locked(
    connection: &mut AsyncPgConnection,
    there: Statement<'_>,
) -> Result<Recall, StoreError> {
    let (there,): (bool,) = there
        .returning::<(Bool,)>()
        .row(connection, OPERATION)
        .await?;
    Ok(if there { Recall::Running } else { Recall::Gone })
}
