//! Dead letters that are alike, counted together.

use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::{QueryResult, SqliteConnection};

use super::letter_filter::Conditions;
use super::letter_row::SUCCESSORS;
use super::statement::Statement;
use super::{SqliteStore, row};
use crate::store::{LetterFilter, LetterGroup, Origin};

/// Of the letters whose key waits for them, each key counts once, with what waits behind its first.
const GROUPS: &str = "SELECT consumer, message_type, reason, fingerprint,
         SUM(letters), SUM(keys), SUM(successors), MIN(oldest), MAX(newest)
     FROM (
         SELECT l.consumer, l.message_type, l.reason, l.fingerprint, COUNT(*) AS letters, MAX(l.parked) AS keys,
             MAX({successors}) AS successors, MIN(l.dead_at) AS oldest, MAX(l.dead_at) AS newest
         FROM {posta}dead_letter AS l WHERE {where}
         GROUP BY l.consumer, l.message_type, l.reason, l.fingerprint, l.parked,
             CASE WHEN l.parked = 1 THEN l.ordering_key END)
     GROUP BY consumer, message_type, reason, fingerprint
     ORDER BY SUM(letters) DESC, MAX(newest) DESC, consumer, message_type, reason, fingerprint LIMIT ?";

type GroupTypes = (
    Nullable<Text>,
    Nullable<Text>,
    Text,
    Text,
    BigInt,
    BigInt,
    BigInt,
    BigInt,
    BigInt,
);

type Group = (
    Option<String>,
    Option<String>,
    String,
    String,
    i64,
    i64,
    i64,
    i64,
    i64,
);

/// The groups of a selection; the limit is still to be bound.
pub(super) fn select(store: &SqliteStore, filter: &LetterFilter) -> Statement {
    Conditions::of(filter).statement(store, &GROUPS.replace("{successors}", SUCCESSORS))
}

/// Runs a statement that [`select`] made.
pub(super) fn read(
    groups: Statement,
    connection: &mut SqliteConnection,
) -> QueryResult<Vec<LetterGroup>> {
    groups
        .rows::<GroupTypes, Group>(connection)?
        .into_iter()
        .map(group)
        .collect()
}

fn group(group: Group) -> QueryResult<LetterGroup> {
    let (consumer, message_type, reason, fingerprint, letters, keys, successors, oldest, newest) =
        group;
    Ok(LetterGroup {
        origin: consumer.map_or(Origin::Dispatch, Origin::Consumer),
        message_type,
        reason,
        fingerprint,
        letters: row::number(letters),
        keys_parked: row::number(keys),
        successors: row::number(successors),
        oldest: row::time(oldest)?,
        newest: row::time(newest)?,
    })
}
