//! What waits behind a parked letter, one by one; [`super::letter_row`] counts it.

use diesel::sql_types::{BigInt, Binary};
use diesel::{QueryResult, SqliteConnection};

use super::SqliteStore;
use super::row;
use crate::store::{LetterId, Successor};

/// A letter's place is in one of the two tables. A message's parts are what plain SQL wrote.
const SUCCESSORS: &str = "SELECT id, type, bytes, attempts, waiting FROM (
         SELECT s.position, CAST(s.message_id AS BLOB) AS id, CAST(s.message_type AS BLOB) AS type,
             LENGTH(CAST(s.payload AS BLOB)) AS bytes, s.attempts, {now} - s.enqueued_at AS waiting
         FROM {posta}outbox AS p CROSS JOIN {posta}outbox AS s
             ON s.slot = p.slot AND s.ordering_key = p.ordering_key AND s.position > p.position AND s.parked = 0
         WHERE p.dead_letter = ? AND p.parked = 1
         UNION ALL
         SELECT s.position, CAST(s.message_id AS BLOB), CAST(s.message_type AS BLOB), LENGTH(s.payload), s.attempts, {now} - s.held_at
         FROM {posta}retry AS p CROSS JOIN {posta}retry AS s
             ON s.consumer = p.consumer AND s.ordering_key = p.ordering_key AND s.position > p.position
                 AND s.parked = 0
         WHERE p.dead_letter = ? AND p.parked = 1)
     ORDER BY position LIMIT ?";

type Row = (Vec<u8>, Vec<u8>, i64, i64, i64);

pub(super) fn read(
    store: &SqliteStore,
    connection: &mut SqliteConnection,
    letter: LetterId,
    limit: usize,
) -> QueryResult<Vec<Successor>> {
    let rows = store
        .sql(SUCCESSORS)
        .bind(letter.0)
        .bind(letter.0)
        .bind(limit)
        .rows::<(Binary, Binary, BigInt, BigInt, BigInt), Row>(connection)?;
    Ok(rows.into_iter().map(successor).collect())
}

fn successor((message_id, message_type, payload_bytes, attempts, waiting): Row) -> Successor {
    Successor {
        message_id: row::id_text(&message_id),
        message_type: String::from_utf8_lossy(&message_type).into_owned(),
        payload_bytes: row::number(payload_bytes),
        attempts: row::count(attempts),
        waiting_for: row::duration(waiting),
    }
}
