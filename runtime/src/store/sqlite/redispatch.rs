use diesel::sql_types::{BigInt, Text};
use time::OffsetDateTime;

use super::connection::on_thread;
use super::row::{self, micros_of};
use super::statement::{Statement, Value};
use super::{Connection, SqliteStore};
use crate::store::{
    RedispatchFilter, RedispatchPreview, RedispatchStep, RedispatchStore, StoreError,
};

/// What every consumer that handles a type of the selection lacks of it. A message that failed or is
/// set aside there is in its inbox too.
const LACKING: &str = "SELECT h.consumer, SUM(NOT EXISTS (
         SELECT 1 FROM {posta}inbox AS i WHERE i.consumer = h.consumer AND i.message_id = d.message_id))
     FROM {posta}dispatched AS d JOIN {posta}handled_type AS h ON h.message_type = d.message_type
     WHERE {where} GROUP BY h.consumer ORDER BY h.consumer";

/// The next rows behind a position. NOT INDEXED: in the order of the table, or the whole span of
/// time would be read and sorted at each step.
const CHOSEN: &str = "SELECT d.position FROM {posta}dispatched AS d NOT INDEXED
     WHERE {where} AND d.position > ? ORDER BY d.position LIMIT ?";

/// The position before the first that can be one of the rows, so that what was dispatched long
/// before is not walked over.
const FRONT: &str =
    "SELECT COALESCE(MIN(d.position) - 1, 9223372036854775807) FROM {posta}dispatched AS d
     WHERE d.dispatched_at >= ? AND d.dispatched_at < ?";

/// Moves one row. Whose id waits in the outbox already goes out anyway.
const AGAIN: &str = "INSERT INTO {posta}outbox (message_id, message_type, version, ordering_key, headers, content_type,
         payload, enqueued_at, slot)
     SELECT message_id, message_type, version, ordering_key, headers, content_type, payload, enqueued_at, slot
     FROM {posta}dispatched WHERE position = ?
     ON CONFLICT (message_id) DO NOTHING";

impl RedispatchStore for SqliteStore {
    async fn now(&self, connection: &mut Connection) -> Result<OffsetDateTime, StoreError> {
        let now = self.sql("SELECT {now}").statement();
        on_thread(connection, "read the database's clock", |connection| {
            row::time(now.one::<BigInt, i64>(connection)?)
        })
        .await
    }

    async fn preview_redispatch(
        &self,
        connection: &mut Connection,
        filter: &RedispatchFilter,
    ) -> Result<RedispatchPreview, StoreError> {
        let count = self.selected(
            "SELECT COUNT(*), COUNT(DISTINCT d.ordering_key) FROM {posta}dispatched AS d WHERE {where}",
            filter,
        );
        let lacking = self.selected(LACKING, filter);
        on_thread(connection, "preview a redispatch", |connection| {
            let (rows, keys) = count.one::<(BigInt, BigInt), (i64, i64)>(connection)?;
            let lacking = lacking.rows::<(Text, BigInt), (String, i64)>(connection)?;
            Ok(RedispatchPreview {
                rows: row::number(rows),
                keys: row::number(keys),
                lacking: lacking
                    .into_iter()
                    .map(|(consumer, rows)| (consumer, row::number(rows)))
                    .collect(),
            })
        })
        .await
    }

    async fn redispatch(
        &self,
        connection: &mut Connection,
        filter: &RedispatchFilter,
        after: Option<i64>,
        limit: usize,
    ) -> Result<RedispatchStep, StoreError> {
        let chosen = self.selected(CHOSEN, filter);
        let front = filter.from.map(|from| {
            let front = self.sql(FRONT).bind(micros_of(from));
            front.bind(micros_of(filter.before))
        });
        let again = self.sql(AGAIN);
        let forget = self.sql("DELETE FROM {posta}dispatched WHERE position = ?");
        on_thread(connection, "dispatch rows again", move |connection| {
            let after = match (after, front) {
                (Some(after), _) => after,
                (None, Some(front)) => front.one::<BigInt, i64>(connection)?,
                (None, None) => i64::MIN,
            };
            let chosen = chosen.bind(after).bind(limit);
            let chosen = chosen.rows::<BigInt, i64>(connection)?;
            for position in &chosen {
                again.bind(*position).execute(connection)?;
                forget.bind(*position).execute(connection)?;
            }
            Ok(RedispatchStep {
                rows: chosen.len(),
                last: chosen.last().copied(),
            })
        })
        .await
    }
}

impl SqliteStore {
    /// A statement with `{where}` in its text, where the filter's conditions on the table `d` go.
    fn selected(&self, text: &str, filter: &RedispatchFilter) -> Statement {
        let mut conditions = "d.dispatched_at < ?".to_owned();
        let mut values: Vec<Value> = vec![micros_of(filter.before).into()];
        if let Some(from) = filter.from {
            conditions += " AND d.dispatched_at >= ?";
            values.push(micros_of(from).into());
        }
        for (condition, text) in [
            (" AND d.message_type = ?", &filter.message_type),
            (" AND d.ordering_key = ?", &filter.key),
        ] {
            if let Some(text) = text {
                conditions += condition;
                values.push(text.as_str().into());
            }
        }
        values.into_iter().fold(
            self.sql(&text.replace("{where}", &conditions)).statement(),
            Statement::bind,
        )
    }
}
