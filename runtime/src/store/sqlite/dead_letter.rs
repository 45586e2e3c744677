use std::collections::{BTreeMap, HashSet};

use diesel::sql_types::{BigInt, Text};
use diesel::{QueryResult, SqliteConnection};

use super::connection::on_thread;
use super::letter_filter::Conditions;
use super::row::{self, micros_of};
use super::statement::{Sql, Statement, Value};
use super::{Connection, SqliteStore, letter_group, letter_row, revision, successor};
use crate::store::text::{storable, storable_error};
use crate::store::{
    DeadLetter, DeadLetterStore, LetterChange, LetterFilter, LetterGroup, LetterId, NewDeadLetter,
    NewRevision, Origin, Revision, StoreError, Successor,
};

const BURY: &str = "INSERT INTO {posta}dead_letter (consumer, message_id, message_type, version, ordering_key, headers,
         content_type, enqueued_at, payload, slot, first_failed_at, attempts, reason, error, fingerprint, parked, state,
         ended_at)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, COALESCE(?, {now}), ?, ?, ?, ?, ?, ?, CASE WHEN ? = 1 THEN {now} END)
     RETURNING position";

/// A letter that is written anew: what was set aside first stays.
const BURY_AGAIN: &str = "UPDATE {posta}dead_letter
     SET first_dead_at = COALESCE(first_dead_at, dead_at), dead_at = {now}, attempts = ?, reason = ?, error = ?,
         fingerprint = ?, parked = ?, state = ?, ended_at = CASE WHEN ? = 1 THEN {now} END
     WHERE position = ? RETURNING position";

/// One step in `dead_letter_consumer` a name, however many letters it has.
const DEAD_CONSUMERS: &str = "WITH RECURSIVE name (consumer) AS (
         SELECT MIN(consumer) FROM {posta}dead_letter
         UNION ALL
         SELECT (SELECT MIN(consumer) FROM {posta}dead_letter WHERE consumer > name.consumer)
         FROM name WHERE consumer IS NOT NULL)
     SELECT consumer FROM name WHERE consumer IS NOT NULL";

impl DeadLetterStore for SqliteStore {
    async fn bury(
        &self,
        connection: &mut Connection,
        letters: &[NewDeadLetter],
    ) -> Result<Vec<LetterId>, StoreError> {
        let (bury, again) = (self.sql(BURY), self.sql(BURY_AGAIN));
        let letters: Vec<(Option<Statement>, Statement)> = letters
            .iter()
            .map(|letter| {
                let again = letter
                    .again
                    .map(|id| bind_death(again.statement(), letter).bind(id.0));
                (again, bind(&bury, letter))
            })
            .collect();
        on_thread(connection, "set messages aside", move |connection| {
            letters
                .into_iter()
                .map(|(again, new)| {
                    let there = match again {
                        Some(again) => again.first::<BigInt, i64>(connection)?,
                        None => None,
                    };
                    // A letter that is gone, by hand, is one that was not there before.
                    let id = there.map_or_else(|| new.one::<BigInt, i64>(connection), Ok)?;
                    Ok(LetterId(id))
                })
                .collect()
        })
        .await
    }

    async fn dead_letters(
        &self,
        connection: &mut Connection,
        origin: &Origin,
    ) -> Result<u64, StoreError> {
        let count = self
            .sql("SELECT COUNT(*) FROM {posta}dead_letter WHERE consumer IS ? AND state = 'dead'")
            .bind(consumer_of(origin));
        on_thread(connection, "count dead letters", |connection| {
            count.one::<BigInt, i64>(connection).map(row::number)
        })
        .await
    }

    async fn dead_consumers(&self, connection: &mut Connection) -> Result<Vec<String>, StoreError> {
        let names = self.sql(DEAD_CONSUMERS).statement();
        on_thread(connection, "read who has dead letters", |connection| {
            names.rows::<Text, String>(connection)
        })
        .await
    }

    async fn letters(
        &self,
        connection: &mut Connection,
        filter: &LetterFilter,
        after: Option<LetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let which =
            letter_row::select("WHERE {where} AND l.position > ? ORDER BY l.position LIMIT ?");
        let letters = Conditions::of(filter)
            .statement(self, &which)
            .bind(after.map_or(i64::MIN, |letter| letter.0))
            .bind(limit);
        let store = self.clone();
        on_thread(connection, "read dead letters", move |connection| {
            letter_row::read(&store, letters, connection)
        })
        .await
    }

    async fn successors(
        &self,
        connection: &mut Connection,
        letter: LetterId,
        limit: usize,
    ) -> Result<Vec<Successor>, StoreError> {
        let store = self.clone();
        on_thread(
            connection,
            "read a letter's successors",
            move |connection| successor::read(&store, connection, letter, limit),
        )
        .await
    }

    async fn letter_groups(
        &self,
        connection: &mut Connection,
        filter: &LetterFilter,
        limit: usize,
    ) -> Result<Vec<LetterGroup>, StoreError> {
        let groups = letter_group::select(self, filter).bind(limit);
        on_thread(connection, "group dead letters", |connection| {
            letter_group::read(groups, connection)
        })
        .await
    }

    /// Nobody else can act upon anything until the transaction ends: one writes at a time.
    async fn lock_letters(
        &self,
        connection: &mut Connection,
        letters: &[LetterId],
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let which = "WHERE l.position IN (SELECT value FROM json_each(?)) ORDER BY l.position";
        let letters = self.sql(&letter_row::select(which)).bind(numbers(letters));
        let store = self.clone();
        on_thread(connection, "lock dead letters", move |connection| {
            letter_row::read(&store, letters, connection)
        })
        .await
    }

    async fn change_letters(
        &self,
        connection: &mut Connection,
        letters: &[LetterId],
        change: LetterChange,
    ) -> Result<Vec<LetterId>, StoreError> {
        let (becomes, from) = match change {
            LetterChange::Replay => (
                "state = 'replaying', replays = replays + 1, attempts = 0",
                "state = 'dead'",
            ),
            LetterChange::Discard => (
                "state = 'discarded', parked = 0, ended_at = {now}",
                "state = 'dead'",
            ),
            LetterChange::Restore => ("state = 'dead', ended_at = NULL", "state = 'discarded'"),
            LetterChange::Skip => ("parked = 0", "state = 'dead' AND parked = 1"),
            LetterChange::Recall => ("state = 'dead'", "state = 'replaying'"),
        };
        let change = self
            .sql(&format!(
                "UPDATE {{posta}}dead_letter SET {becomes}
                 WHERE position IN (SELECT value FROM json_each(?)) AND {from} RETURNING position"
            ))
            .bind(numbers(letters));
        let letters = letters.to_vec();
        on_thread(connection, "change dead letters", move |connection| {
            let changed = change.rows::<BigInt, i64>(connection)?;
            let mut changed: HashSet<LetterId> = changed.into_iter().map(LetterId).collect();
            Ok(letters
                .into_iter()
                .filter(|letter| changed.remove(letter))
                .collect())
        })
        .await
    }

    async fn revise(
        &self,
        connection: &mut Connection,
        letter: LetterId,
        revision: &NewRevision,
    ) -> Result<Option<u32>, StoreError> {
        let (store, revision) = (self.clone(), revision.clone());
        on_thread(connection, "revise a dead letter", move |connection| {
            revision::add(&store, connection, letter, revision)
        })
        .await
    }

    async fn revisions(
        &self,
        connection: &mut Connection,
        letter: LetterId,
    ) -> Result<Vec<Revision>, StoreError> {
        let store = self.clone();
        on_thread(connection, "read a letter's revisions", move |connection| {
            revision::read(&store, connection, letter)
        })
        .await
    }
}

/// The letters that were replayed got through, or will say so if they die again.
pub(super) fn replayed(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    letters: &[i64],
) -> QueryResult<()> {
    if letters.is_empty() {
        return Ok(());
    }
    store
        .sql(
            "UPDATE {posta}dead_letter SET state = 'replayed', parked = 0, ended_at = {now}
             WHERE position IN (SELECT value FROM json_each(?)) AND state = 'replaying'",
        )
        .bind(Value::json(letters))
        .execute(connection)
        .map(|_| ())
}

/// Text without NUL, as in every database; SQLite would hold it, but its own shell and others would
/// cut it there.
pub(super) fn part(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn numbers(letters: &[LetterId]) -> Value {
    Value::json(&letters.iter().map(|letter| letter.0).collect::<Vec<i64>>())
}

fn consumer_of(origin: &Origin) -> Option<String> {
    match origin {
        Origin::Dispatch => None,
        Origin::Consumer(name) => Some(name.clone()),
    }
}

fn bind(bury: &Sql, letter: &NewDeadLetter) -> Statement {
    let message = &letter.message;
    let headers: BTreeMap<String, String> = message
        .headers
        .iter()
        .map(|(name, value)| (part(name), part(value)))
        .collect();
    let bury = bury
        .bind(consumer_of(&letter.origin))
        .bind(message.id.as_deref().map(part))
        .bind(message.message_type.as_deref().map(part))
        .bind(message.version)
        .bind(message.key.as_deref().map(part))
        .bind(serde_json::to_string(&headers).expect("a map of texts has a JSON form"))
        .bind(message.content_type.as_deref().map(part))
        .bind(message.enqueued_at.map(micros_of))
        .bind(message.payload.clone())
        .bind(letter.slot.map(|slot| i64::from(slot.number())))
        .bind(letter.first_failed_at.map(micros_of));
    bind_death(bury, letter)
}

/// Binds attempts, reason, error, fingerprint, parked, state, and whether it has ended.
fn bind_death(statement: Statement, letter: &NewDeadLetter) -> Statement {
    let state = if letter.discarded {
        "discarded"
    } else {
        "dead"
    };
    statement
        .bind(letter.attempts)
        .bind(letter.reason)
        .bind(storable_error(&letter.error))
        .bind(storable(&letter.fingerprint))
        // A letter that is dropped keeps nobody waiting.
        .bind(letter.parked && !letter.discarded)
        .bind(state)
        .bind(letter.discarded)
}
