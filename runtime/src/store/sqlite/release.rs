//! What leaves the retry table, and which message of its key is the next.

use std::collections::{BTreeMap, HashSet};

use diesel::sql_types::{BigInt, Nullable, Text};
use diesel::{QueryResult, SqliteConnection};

use super::statement::Value;
use super::{SqliteStore, dead_letter};
use crate::store::LetterId;

/// Takes messages out; returns those that were there, in the order given, each once.
pub(super) fn release(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    consumer: &str,
    positions: &[i64],
) -> QueryResult<Vec<i64>> {
    // +consumer: found by position, not by a walk through all that the consumer has.
    let removed = store
        .sql(
            "DELETE FROM {posta}retry
             WHERE position IN (SELECT value FROM json_each(?)) AND +consumer = ? AND parked = 0
             RETURNING position, ordering_key, dead_letter",
        )
        .bind(Value::json(positions))
        .bind(consumer)
        .rows::<(BigInt, Nullable<Text>, Nullable<BigInt>), (i64, Option<String>, Option<i64>)>(
            connection,
        )?;
    let mut gone = HashSet::with_capacity(removed.len());
    let mut keys = BTreeMap::new();
    let mut letters = Vec::new();
    for (position, key, letter) in removed {
        gone.insert(position);
        letters.extend(letter);
        if let Some(key) = key {
            let first = keys.entry(key).or_insert(position);
            *first = position.min(*first);
        }
    }
    for (key, first) in keys {
        promote(store, connection, consumer, &key, first)?;
    }
    dead_letter::replayed(store, connection, &letters)?;
    Ok(positions
        .iter()
        .copied()
        .filter(|position| gone.remove(position))
        .collect())
}

/// Takes the place of a dead letter away; whether it kept one.
pub(super) fn unpark(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    consumer: &str,
    letter: LetterId,
) -> QueryResult<bool> {
    let removed = store
        .sql(
            "DELETE FROM {posta}retry WHERE dead_letter = ? AND consumer = ? AND parked = 1
             RETURNING position, ordering_key",
        )
        .bind(letter.0)
        .bind(consumer)
        .first::<(BigInt, Text), (i64, String)>(connection)?;
    let Some((position, key)) = removed else {
        return Ok(false);
    };
    promote(store, connection, consumer, &key, position)?;
    Ok(true)
}

/// Takes a message out that is not to be run.
pub(super) fn withdraw(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    consumer: &str,
    position: i64,
) -> QueryResult<()> {
    let key = store
        .sql("DELETE FROM {posta}retry WHERE position = ? RETURNING ordering_key")
        .bind(position)
        .first::<Nullable<Text>, Option<String>>(connection)?;
    match key.flatten() {
        Some(key) => promote(store, connection, consumer, &key, position),
        None => Ok(()),
    }
}

/// Makes the first message of a key due if what was before it is gone. It may be the place of a dead
/// letter: then the key waits for that one.
fn promote(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    consumer: &str,
    key: &str,
    gone: i64,
) -> QueryResult<()> {
    store
        .sql(
            "UPDATE {posta}retry SET due_at = {now} WHERE position = (
                 SELECT MIN(position) FROM {posta}retry WHERE consumer = ? AND ordering_key = ?)
               AND position > ? AND parked = 0",
        )
        .bind(consumer)
        .bind(key)
        .bind(gone)
        .execute(connection)
        .map(|_| ())
}
