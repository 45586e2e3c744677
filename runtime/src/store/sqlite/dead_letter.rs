use diesel::sql_types::BigInt;

use super::connection::on_thread;
use super::row::{self, micros_of};
use super::statement::{Sql, Statement};
use super::{Connection, SqliteStore};
#[allow(unused_imports)]
use crate::message::*;
use crate::store::text::storable;
#[allow(unused_imports)]
use crate::store::*;
use crate::store::{DeadLetterStore, NewDeadLetter, Origin, StoreError};

impl DeadLetterStore for SqliteStore {
    async fn letters(
        &self,
        _connection: &mut Connection,
        _filter: &LetterFilter,
        _after: Option<LetterId>,
        _limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        todo!()
    }
    async fn letter_groups(
        &self,
        _connection: &mut Connection,
        _filter: &LetterFilter,
        _limit: usize,
    ) -> Result<Vec<LetterGroup>, StoreError> {
        todo!()
    }
    async fn lock_letters(
        &self,
        _connection: &mut Connection,
        _letters: &[LetterId],
    ) -> Result<Vec<DeadLetter>, StoreError> {
        todo!()
    }
    async fn change_letters(
        &self,
        _connection: &mut Connection,
        _letters: &[LetterId],
        _change: LetterChange,
    ) -> Result<Vec<LetterId>, StoreError> {
        todo!()
    }
    async fn revise(
        &self,
        _connection: &mut Connection,
        _letter: LetterId,
        _revision: &NewRevision,
    ) -> Result<Option<u32>, StoreError> {
        todo!()
    }
    async fn revisions(
        &self,
        _connection: &mut Connection,
        _letter: LetterId,
    ) -> Result<Vec<Revision>, StoreError> {
        todo!()
    }
    async fn bury(
        &self,
        connection: &mut Connection,
        letters: &[NewDeadLetter],
    ) -> Result<Vec<LetterId>, StoreError> {
        let bury = self.sql(
            "INSERT INTO {posta}dead_letter (consumer, message_id, message_type, version, ordering_key, headers,
                 content_type, enqueued_at, attempts, reason, error, payload)
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        );
        let letters: Vec<Statement> = letters.iter().map(|letter| bind(&bury, letter)).collect();
        on_thread(connection, "set messages aside", move |connection| {
            letters
                .into_iter()
                .try_for_each(|letter| letter.execute(connection).map(|_| ()))
        })
        .await?;
        todo!()
    }

    async fn dead_letters(
        &self,
        connection: &mut Connection,
        origin: &Origin,
    ) -> Result<u64, StoreError> {
        let count = self
            .sql("SELECT COUNT(*) FROM {posta}dead_letter WHERE consumer IS ?")
            .bind(consumer_of(origin));
        on_thread(connection, "count dead letters", |connection| {
            count.one::<BigInt, i64>(connection).map(row::number)
        })
        .await
    }
}

fn consumer_of(origin: &Origin) -> Option<String> {
    match origin {
        Origin::Dispatch => None,
        Origin::Consumer(name) => Some(name.clone()),
    }
}

/// Text without NUL, as in every database; SQLite would hold it, but its own shell and others would
/// cut it there.
fn part(text: &str) -> String {
    text.replace('\0', "\u{fffd}")
}

fn bind(bury: &Sql, letter: &NewDeadLetter) -> Statement {
    let message = &letter.message;
    let headers: std::collections::BTreeMap<String, String> = message
        .headers
        .iter()
        .map(|(name, value)| (part(name), part(value)))
        .collect();
    bury.bind(consumer_of(&letter.origin))
        .bind(message.id.as_deref().map(part))
        .bind(message.message_type.as_deref().map(part))
        .bind(message.version)
        .bind(message.key.as_deref().map(part))
        .bind(serde_json::to_string(&headers).expect("a map of texts has a JSON form"))
        .bind(message.content_type.as_deref().map(part))
        .bind(message.enqueued_at.map(micros_of))
        .bind(letter.attempts)
        .bind(letter.reason)
        .bind(storable(&letter.error))
        .bind(message.payload.clone())
}
