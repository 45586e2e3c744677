//! Dead letters that are alike, counted together.

use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::{QueryResult, SqliteConnection};

use super::letter_filter::Conditions;
use super::letter_row::{QUEUED, SUCCESSORS};
use super::statement::Statement;
use super::{SqliteStore, row};
use crate::store::{LetterFilter, LetterGroup, Origin};

/// Of the letters whose key waits for them, each key counts once, with what waits behind its first.
const GROUPS: &str = "WITH letter (consumer, message_type, reason, fingerprint, parked, key, dead_at, slot, place,
             position, waits) AS MATERIALIZED (
         SELECT l.consumer, l.message_type, l.reason, l.fingerprint, l.parked,
             CASE WHEN l.parked = 1 THEN l.ordering_key END, l.dead_at, p.slot, p.ordering_key, p.position, {successors}
         FROM {posta}dead_letter AS l
             LEFT JOIN {posta}outbox AS p ON p.dead_letter = l.position AND l.parked = 1
         WHERE {where})
     SELECT consumer, message_type, reason, fingerprint,
         SUM(letters), SUM(keys), SUM(successors), MIN(oldest), MAX(newest)
     FROM (
         SELECT consumer, message_type, reason, fingerprint, COUNT(*) AS letters, MAX(parked) AS keys,
             MAX(CASE WHEN place IS NULL THEN waits ELSE queued END) AS successors,
             MIN(dead_at) AS oldest, MAX(dead_at) AS newest
         FROM (
             SELECT *, SUM(waits) OVER (PARTITION BY slot, place ORDER BY position DESC, waits) AS queued
             FROM (
                 SELECT 1 AS is_letter, * FROM letter
                 UNION ALL
                 SELECT 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, o.slot, o.ordering_key, o.position, 1 FROM {queued}))
         WHERE is_letter = 1
         GROUP BY consumer, message_type, reason, fingerprint, parked, key)
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
    let groups = GROUPS
        .replace("{successors}", SUCCESSORS)
        .replace("{queued}", QUEUED);
    Conditions::of(filter).statement(store, &groups)
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
