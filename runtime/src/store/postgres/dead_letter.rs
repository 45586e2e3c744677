use std::borrow::Cow;
use std::collections::BTreeMap;

use diesel::data_types::PgTimestamp;
use diesel::sql_types::{Array, BigInt, Binary, Integer, Nullable, Text, Timestamptz};
use diesel_async::AsyncPgConnection;

use super::PostgresStore;
use super::columns::timestamp;
use super::statement::{Statement, statements};
use crate::message::RawMessage;
#[allow(unused_imports)]
use crate::message::*;
use crate::store::text::storable;
#[allow(unused_imports)]
use crate::store::*;
use crate::store::{DeadLetterStore, NewDeadLetter, Origin, StoreError};

statements!(DeadLetterTexts {
    bury = "
INSERT INTO {posta}dead_letter (consumer, message_id, message_type, version, ordering_key, headers, content_type, payload,
                                enqueued_at, attempts, reason, error)
SELECT d.consumer, d.message_id, d.message_type, d.version, d.ordering_key, d.headers::jsonb, d.content_type, d.payload,
       d.enqueued_at, d.attempts, d.reason, d.error
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[], $8::bytea[],
            $9::timestamptz[], $10::integer[], $11::text[], $12::text[])
    WITH ORDINALITY AS d (consumer, message_id, message_type, version, ordering_key, headers, content_type, payload,
                          enqueued_at, attempts, reason, error, n)
ORDER BY d.n";

    dead_letters = "
SELECT count(*) FROM {posta}dead_letter WHERE consumer IS NOT DISTINCT FROM $1";
});

impl DeadLetterStore for PostgresStore {
    async fn letters(
        &self,
        _connection: &mut AsyncPgConnection,
        _filter: &LetterFilter,
        _after: Option<LetterId>,
        _limit: usize,
    ) -> Result<Vec<DeadLetter>, StoreError> {
        todo!()
    }
    async fn letter_groups(
        &self,
        _connection: &mut AsyncPgConnection,
        _filter: &LetterFilter,
        _limit: usize,
    ) -> Result<Vec<LetterGroup>, StoreError> {
        todo!()
    }
    async fn lock_letters(
        &self,
        _connection: &mut AsyncPgConnection,
        _letters: &[LetterId],
    ) -> Result<Vec<DeadLetter>, StoreError> {
        todo!()
    }
    async fn change_letters(
        &self,
        _connection: &mut AsyncPgConnection,
        _letters: &[LetterId],
        _change: LetterChange,
    ) -> Result<Vec<LetterId>, StoreError> {
        todo!()
    }
    async fn revise(
        &self,
        _connection: &mut AsyncPgConnection,
        _letter: LetterId,
        _revision: &NewRevision,
    ) -> Result<Option<u32>, StoreError> {
        todo!()
    }
    async fn revisions(
        &self,
        _connection: &mut AsyncPgConnection,
        _letter: LetterId,
    ) -> Result<Vec<Revision>, StoreError> {
        todo!()
    }
    async fn bury(
        &self,
        connection: &mut AsyncPgConnection,
        letters: &[NewDeadLetter],
    ) -> Result<Vec<LetterId>, StoreError> {
        if letters.is_empty() {
            return Ok(Vec::new());
        }
        let text = |part: fn(&RawMessage) -> Option<&String>| -> Vec<Option<String>> {
            let stored = |text: &String| without_nul(text).into_owned();
            letters
                .iter()
                .map(|letter| part(&letter.message).map(stored))
                .collect()
        };
        let consumers: Vec<Option<&str>> = letters.iter().map(|l| consumer(&l.origin)).collect();
        let versions: Vec<Option<i64>> = letters.iter().map(|l| l.message.version).collect();
        let headers: Vec<String> = letters.iter().map(|l| json(&l.message.headers)).collect();
        let payloads: Vec<&[u8]> = letters.iter().map(|l| &l.message.payload[..]).collect();
        let enqueued: Vec<Option<PgTimestamp>> = letters
            .iter()
            .map(|l| l.message.enqueued_at.and_then(timestamp))
            .collect();
        let attempts: Vec<i32> = letters
            .iter()
            .map(|l| i32::try_from(l.attempts).unwrap_or(i32::MAX))
            .collect();
        let reasons: Vec<&str> = letters.iter().map(|l| l.reason).collect();
        let errors: Vec<String> = letters.iter().map(|l| storable(&l.error)).collect();
        Statement::new(&self.texts().dead_letter.bury)
            .bind::<Array<Nullable<Text>>, _>(consumers)
            .bind::<Array<Nullable<Text>>, _>(text(|message| message.id.as_ref()))
            .bind::<Array<Nullable<Text>>, _>(text(|message| message.message_type.as_ref()))
            .bind::<Array<Nullable<BigInt>>, _>(versions)
            .bind::<Array<Nullable<Text>>, _>(text(|message| message.key.as_ref()))
            .bind::<Array<Text>, _>(headers)
            .bind::<Array<Nullable<Text>>, _>(text(|message| message.content_type.as_ref()))
            .bind::<Array<Binary>, _>(payloads)
            .bind::<Array<Nullable<Timestamptz>>, _>(enqueued)
            .bind::<Array<Integer>, _>(attempts)
            .bind::<Array<Text>, _>(reasons)
            .bind::<Array<Text>, _>(errors)
            .run(connection, "write dead letters")
            .await?;
        todo!()
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
}

fn consumer(origin: &Origin) -> Option<&str> {
    match origin {
        Origin::Dispatch => None,
        Origin::Consumer(consumer) => Some(consumer),
    }
}

/// Headers as a JSON object that PostgreSQL takes: jsonb holds no NUL, not even an escaped one.
fn json(headers: &BTreeMap<String, String>) -> String {
    let headers: BTreeMap<_, _> = headers
        .iter()
        .map(|(name, value)| (without_nul(name), without_nul(value)))
        .collect();
    serde_json::to_string(&headers).expect("a map of texts has a JSON form")
}

/// A part of a message as PostgreSQL's `text` can hold it: U+FFFD in place of each NUL, which a
/// foreign publisher may have sent.
fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        text.replace('\0', "\u{fffd}").into()
    } else {
        text.into()
    }
}
