//! Dead letters of both ends, and what operators make of them. The statements are in `texts`, each
//! with its reason.

mod filter;
mod parts;
mod rows;
mod texts;

use std::collections::{HashMap, HashSet};

use diesel::sql_types::{
    Array, BigInt, Binary, Bool, Integer, Nullable, SmallInt, Text, Timestamptz,
};
use diesel_async::AsyncPgConnection;
use futures_util::future::try_join;

use self::filter::states;
pub(super) use self::filter::{chosen, filtered};
use self::parts::{consumer, json, without_nul};
use self::rows::{
    GroupColumns, LetterColumns, LetterRow, RevisionColumns, SuccessorColumns, group, letter,
    number, revision, successor,
};
pub(super) use self::texts::DeadLetterTexts;
use super::PostgresStore;
use super::classify::failed;
use super::columns::timestamp;
use super::statement::Statement;
use crate::message::RawMessage;
use crate::store::text::{storable, storable_error};
use crate::store::{
    DeadLetter, DeadLetterStore, LetterChange, LetterFilter, LetterGroup, LetterId, NewDeadLetter,
    NewRevision, Origin, Revision, StoreError, Successor,
};

const BURY: &str = "write dead letters";
const READ: &str = "read dead letters";

impl DeadLetterStore for PostgresStore {
    async fn bury(
        &self,
        connection: &mut AsyncPgConnection,
        letters: &[NewDeadLetter],
    ) -> Result<Vec<LetterId>, StoreError> {
        let known = self.bury_again(connection, letters).await?;
        let is_known = |letter: &&NewDeadLetter| letter.again.is_some_and(|a| known.contains(&a));
        let fresh: Vec<&NewDeadLetter> = letters.iter().filter(|l| !is_known(l)).collect();
        let mut fresh = self.bury_fresh(connection, &fresh).await?.into_iter();
        let ids = letters.iter().filter_map(|letter| match letter.again {
            Some(again) if is_known(&letter) => Some(again),
            _ => fresh.next(),
        });
        Ok(ids.collect())
    }

    async fn dead_letters(
        &self,
        connection: &mut AsyncPgConnection,
        origin: &Origin,
    ) -> Result<u64, StoreError> {
        let (count,): (i64,) = Statement::new(&self.texts().dead_letter.dead_letters)
            .bind::<Nullable<Text>, _>(consumer(origin))
            .returning::<(BigInt,)>()
            .row(connection, "count dead letters")
            .await?;
        Ok(count.unsigned_abs())
    }

    async fn dead_consumers(
        &self,
        connection: &mut AsyncPgConnection,
    ) -> Result<Vec<String>, StoreError> {
        let names: Vec<(String,)> = Statement::new(&self.texts().dead_letter.dead_consumers)
            .returning::<(Text,)>()
            .front_rows(connection, READ)
            .await?;
        Ok(names.into_iter().map(|(name,)| name).collect())
    }

    async fn letters(
        &self,
        connection: &mut AsyncPgConnection,
        filter: &LetterFilter,
        after: Option<LetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let rows: Vec<LetterRow> =
            filtered(&self.texts().dead_letter.letters, filter, states(filter))
                .bind::<BigInt, _>(after.map_or(i64::MIN, |letter| letter.0))
                .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX))
                .returning::<LetterColumns>()
                .front_rows(connection, READ)
                .await?;
        self.letters_of(connection, rows, READ).await
    }

    async fn successors(
        &self,
        connection: &mut AsyncPgConnection,
        letter: LetterId,
        limit: usize,
    ) -> Result<Vec<Successor>, StoreError> {
        let texts = &self.texts().dead_letter;
        let mut found = Vec::new();
        // A letter's place is in one of the two.
        for text in [&texts.successors_in_retry, &texts.successors_in_outbox] {
            let rows = Statement::new(text)
                .bind::<BigInt, _>(letter.0)
                .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX))
                .returning::<SuccessorColumns>()
                .front_rows(connection, READ)
                .await?;
            found.extend(rows.into_iter().map(successor));
        }
        Ok(found)
    }

    async fn letter_groups(
        &self,
        connection: &mut AsyncPgConnection,
        filter: &LetterFilter,
        limit: usize,
    ) -> Result<Vec<LetterGroup>, StoreError> {
        let rows = filtered(
            &self.texts().dead_letter.letter_groups,
            filter,
            states(filter),
        )
        .bind::<BigInt, _>(i64::try_from(limit).unwrap_or(i64::MAX))
        .returning::<GroupColumns>()
        .front_rows(connection, READ)
        .await?;
        rows.into_iter().map(|row| group(row, READ)).collect()
    }

    async fn lock_letters(
        &self,
        connection: &mut AsyncPgConnection,
        letters: &[LetterId],
    ) -> Result<Vec<DeadLetter>, StoreError> {
        const OPERATION: &str = "lock dead letters";
        if letters.is_empty() {
            return Ok(Vec::new());
        }
        let texts = &self.texts().dead_letter;
        let lock = Statement::new(&texts.lock)
            .bind::<Array<BigInt>, _>(positions(letters))
            .returning::<(BigInt,)>();
        let read = Statement::new(&texts.locked)
            .bind::<Array<BigInt>, _>(positions(letters))
            .returning::<LetterColumns>();
        // Both are sent before either is answered, in this order, which the server keeps.
        let result = {
            let connection = &*connection;
            try_join(
                lock.pipelined::<(i64,)>(connection),
                read.pipelined::<LetterRow>(connection),
            )
            .await
        };
        let (_, rows) = result.map_err(|error| failed(connection, OPERATION, error))?;
        self.letters_of(connection, rows, OPERATION).await
    }

    async fn change_letters(
        &self,
        connection: &mut AsyncPgConnection,
        letters: &[LetterId],
        change: LetterChange,
    ) -> Result<Vec<LetterId>, StoreError> {
        let texts = &self.texts().dead_letter;
        let text = match change {
            LetterChange::Replay => &texts.replay,
            LetterChange::Discard => &texts.discard,
            LetterChange::Restore => &texts.restore,
            LetterChange::Skip => &texts.skip,
            LetterChange::Recall => &texts.recall,
        };
        changed(connection, text, positions(letters), "change dead letters").await
    }

    async fn revise(
        &self,
        connection: &mut AsyncPgConnection,
        letter: LetterId,
        revision: &NewRevision,
    ) -> Result<Option<u32>, StoreError> {
        let numbers: Vec<(i32,)> = Statement::new(&self.texts().dead_letter.revise)
            .bind::<BigInt, _>(letter.0)
            .bind::<Nullable<BigInt>, _>(revision.version)
            .bind::<Nullable<Text>, _>(revision.content_type.as_deref().map(without_nul))
            .bind::<Binary, _>(&revision.payload[..])
            .bind::<Text, _>(storable(&revision.who))
            .bind::<Text, _>(storable(&revision.reason))
            .returning::<(Integer,)>()
            .rows(connection, "revise a dead letter")
            .await?;
        Ok(numbers.first().map(|(revision,)| number(*revision)))
    }

    async fn revisions(
        &self,
        connection: &mut AsyncPgConnection,
        letter: LetterId,
    ) -> Result<Vec<Revision>, StoreError> {
        let rows = Statement::new(&self.texts().dead_letter.revisions)
            .bind::<BigInt, _>(letter.0)
            .returning::<RevisionColumns>()
            .rows(connection, READ)
            .await?;
        rows.into_iter().map(|row| revision(row, READ)).collect()
    }
}

impl PostgresStore {
    /// The letters of rows, with what waits behind them in the outbox.
    async fn letters_of(
        &self,
        connection: &mut AsyncPgConnection,
        rows: Vec<LetterRow>,
        operation: &'static str,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        let mut letters = rows
            .into_iter()
            .map(|row| letter(row, operation))
            .collect::<Result<Vec<DeadLetter>, StoreError>>()?;
        let parked: Vec<i64> = letters
            .iter()
            .filter(|letter| letter.parked && letter.origin == Origin::Dispatch)
            .map(|letter| letter.id.0)
            .collect();
        if parked.is_empty() {
            return Ok(letters);
        }
        let queued: Vec<(i64, i64)> = Statement::new(&self.texts().dead_letter.queued)
            .bind::<Array<BigInt>, _>(parked)
            .returning::<(BigInt, BigInt)>()
            .front_rows(connection, operation)
            .await?;
        let queued: HashMap<i64, i64> = queued.into_iter().collect();
        for letter in &mut letters {
            if let Some(count) = queued.get(&letter.id.0) {
                letter.successors = count.unsigned_abs();
            }
        }
        Ok(letters)
    }

    /// Ends the replays of letters whose messages got through; for none it costs nothing.
    pub(super) async fn replayed(
        &self,
        connection: &mut AsyncPgConnection,
        letters: Vec<i64>,
    ) -> Result<(), StoreError> {
        let text = &self.texts().dead_letter.replayed;
        changed(connection, text, letters, "end the replay of dead letters").await?;
        Ok(())
    }

    /// Writes anew those that were letters already; returns which were.
    async fn bury_again(
        &self,
        connection: &mut AsyncPgConnection,
        letters: &[NewDeadLetter],
    ) -> Result<HashSet<LetterId>, StoreError> {
        let (ids, again): (Vec<i64>, Vec<&NewDeadLetter>) = letters
            .iter()
            .filter_map(|letter| Some((letter.again?.0, letter)))
            .unzip();
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        let found: Vec<(i64,)> = Statement::new(&self.texts().dead_letter.bury_again)
            .bind::<Array<BigInt>, _>(ids)
            .bind::<Array<Integer>, _>(attempts(&again))
            .bind::<Array<Text>, _>(each(&again, |letter| letter.reason))
            .bind::<Array<Text>, _>(each(&again, |letter| storable_error(&letter.error)))
            .bind::<Array<Text>, _>(each(&again, |letter| storable(&letter.fingerprint)))
            .bind::<Array<Bool>, _>(each(&again, |letter| letter.parked))
            .bind::<Array<Bool>, _>(each(&again, |letter| letter.discarded))
            .returning::<(BigInt,)>()
            .rows(connection, BURY)
            .await?;
        Ok(found.into_iter().map(|(id,)| LetterId(id)).collect())
    }

    /// Writes new letters, in the order given.
    async fn bury_fresh(
        &self,
        connection: &mut AsyncPgConnection,
        letters: &[&NewDeadLetter],
    ) -> Result<Vec<LetterId>, StoreError> {
        if letters.is_empty() {
            return Ok(Vec::new());
        }
        let text = |part: fn(&RawMessage) -> Option<&String>| {
            each(letters, |letter| {
                part(&letter.message).map(|text| without_nul(text).into_owned())
            })
        };
        let mut ids: Vec<(i64,)> = Statement::new(&self.texts().dead_letter.bury)
            .bind::<Array<Nullable<Text>>, _>(each(letters, |l| {
                consumer(&l.origin).map(str::to_owned)
            }))
            .bind::<Array<Nullable<Text>>, _>(text(|message| message.id.as_ref()))
            .bind::<Array<Nullable<Text>>, _>(text(|message| message.message_type.as_ref()))
            .bind::<Array<Nullable<BigInt>>, _>(each(letters, |l| l.message.version))
            .bind::<Array<Nullable<Text>>, _>(text(|message| message.key.as_ref()))
            .bind::<Array<Text>, _>(each(letters, |l| json(&l.message.headers)))
            .bind::<Array<Nullable<Text>>, _>(text(|message| message.content_type.as_ref()))
            .bind::<Array<Binary>, _>(
                letters
                    .iter()
                    .map(|l| &l.message.payload[..])
                    .collect::<Vec<_>>(),
            )
            .bind::<Array<Nullable<Timestamptz>>, _>(each(letters, |l| {
                l.message.enqueued_at.and_then(timestamp)
            }))
            .bind::<Array<Integer>, _>(attempts(letters))
            .bind::<Array<Text>, _>(each(letters, |l| l.reason))
            .bind::<Array<Text>, _>(each(letters, |l| storable_error(&l.error)))
            .bind::<Array<Text>, _>(each(letters, |l| storable(&l.fingerprint)))
            .bind::<Array<Nullable<SmallInt>>, _>(each(letters, |l| {
                l.slot.map(|slot| i16::from(slot.number()))
            }))
            .bind::<Array<Nullable<Timestamptz>>, _>(each(letters, |l| {
                l.first_failed_at.and_then(timestamp)
            }))
            .bind::<Array<Bool>, _>(each(letters, |l| l.parked))
            .bind::<Array<Bool>, _>(each(letters, |l| l.discarded))
            .returning::<(BigInt,)>()
            .rows(connection, BURY)
            .await?;
        // In whatever order they are returned: the numbers were drawn in the order given.
        ids.sort_unstable();
        Ok(ids.into_iter().map(|(id,)| LetterId(id)).collect())
    }
}

/// One part of each letter.
fn each<T>(letters: &[&NewDeadLetter], part: impl Fn(&NewDeadLetter) -> T) -> Vec<T> {
    letters.iter().map(|letter| part(letter)).collect()
}

fn attempts(letters: &[&NewDeadLetter]) -> Vec<i32> {
    each(letters, |l| i32::try_from(l.attempts).unwrap_or(i32::MAX))
}

fn positions(letters: &[LetterId]) -> Vec<i64> {
    letters.iter().map(|letter| letter.0).collect()
}

/// Runs a statement that changes letters; returns those that it changed, in order.
async fn changed(
    connection: &mut AsyncPgConnection,
    text: &str,
    letters: Vec<i64>,
    operation: &'static str,
) -> Result<Vec<LetterId>, StoreError> {
    if letters.is_empty() {
        return Ok(Vec::new());
    }
    let mut changed: Vec<(i64,)> = Statement::new(text)
        .bind::<Array<BigInt>, _>(letters)
        .returning::<(BigInt,)>()
        .rows(connection, operation)
        .await?;
    changed.sort_unstable();
    Ok(changed.into_iter().map(|(id,)| LetterId(id)).collect())
}
