//! Operators' versions of a dead letter's message.

use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use diesel::{QueryResult, SqliteConnection};

use super::dead_letter::part;
use super::{SqliteStore, row};
use crate::store::text::storable;
use crate::store::{LetterId, NewRevision, Revision};

/// The message as it was set aside, and what operators made of it.
const REVISIONS: &str =
    "SELECT 0, payload, version, content_type, '', '', COALESCE(first_dead_at, dead_at)
     FROM {posta}dead_letter WHERE position = ?
     UNION ALL
     SELECT revision, payload, version, content_type, who, reason, revised_at
     FROM {posta}dead_letter_revision WHERE dead_letter = ? ORDER BY 1";

type RevisionTypes = (
    BigInt,
    Binary,
    Nullable<BigInt>,
    Nullable<Text>,
    Text,
    Text,
    BigInt,
);

type RevisionRow = (
    i64,
    Vec<u8>,
    Option<i64>,
    Option<String>,
    String,
    String,
    i64,
);

/// Adds a revision to a dead letter and makes it the current one; its number.
pub(super) fn add(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    letter: LetterId,
    revision: NewRevision,
) -> QueryResult<Option<u32>> {
    let number = store
        .sql(
            "UPDATE {posta}dead_letter SET revision = revision + 1
             WHERE position = ? AND state = 'dead' RETURNING revision",
        )
        .bind(letter.0)
        .first::<BigInt, i64>(connection)?;
    let Some(number) = number else {
        return Ok(None);
    };
    store
        .sql(
            "INSERT INTO {posta}dead_letter_revision (dead_letter, revision, version, content_type, who, reason, payload)
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(letter.0)
        .bind(number)
        .bind(revision.version)
        .bind(revision.content_type.as_deref().map(part))
        .bind(storable(&revision.who))
        .bind(storable(&revision.reason))
        .bind(revision.payload)
        .execute(connection)?;
    Ok(Some(row::count(number)))
}

/// A letter's revisions, the message as it was set aside first.
pub(super) fn read(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    letter: LetterId,
) -> QueryResult<Vec<Revision>> {
    store
        .sql(REVISIONS)
        .bind(letter.0)
        .bind(letter.0)
        .rows::<RevisionTypes, RevisionRow>(connection)?
        .into_iter()
        .map(revision)
        .collect()
}

fn revision(
    (number, payload, version, content_type, who, reason, at): RevisionRow,
) -> QueryResult<Revision> {
    Ok(Revision {
        number: row::count(number),
        payload: payload.into(),
        version,
        content_type,
        who,
        reason,
        revised_at: row::time(at)?,
    })
}
