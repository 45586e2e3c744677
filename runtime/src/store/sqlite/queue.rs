use std::collections::HashSet;
use std::ops::RangeInclusive;

use diesel::sql_types::BigInt;

use super::connection::on_thread;
use super::merge::first_positions;
use super::row::{self, COLUMNS, ColumnTypes, Columns};
use super::statement::Value;
use super::{Connection, SqliteStore};
use crate::message::MessageType;
use crate::store::{QueueRow, QueueStore, RowId, StoreError};

impl QueueStore for SqliteStore {
    async fn subscribe(
        &self,
        connection: &mut Connection,
        consumer: &str,
        types: &[MessageType],
    ) -> Result<(), StoreError> {
        let known = self.sql("SELECT message_type FROM {posta}subscription WHERE consumer = ?");
        let add = self.sql(
            "INSERT INTO {posta}subscription (message_type, consumer) VALUES (?, ?)
             ON CONFLICT DO NOTHING",
        );
        let consumer = consumer.to_owned();
        let types: HashSet<String> = types
            .iter()
            .map(|message_type| message_type.as_str().to_owned())
            .collect();
        on_thread(connection, "subscribe", move |connection| {
            // Only differences are written: a service that starts again as it was writes nothing.
            let known: HashSet<String> = known
                .bind(consumer.as_str())
                .rows::<diesel::sql_types::Text, String>(connection)?
                .into_iter()
                .collect();
            for new in types.difference(&known) {
                add.bind(new.as_str())
                    .bind(consumer.as_str())
                    .execute(connection)?;
            }
            Ok(())
        })
        .await
    }

    async fn route(
        &self,
        connection: &mut Connection,
        rows: &[RowId],
    ) -> Result<Vec<RowId>, StoreError> {
        let copy = self.sql(
            "INSERT INTO {posta}queue (consumer, slot, message_id, message_type, version, ordering_key, headers,
                 content_type, enqueued_at, payload)
             SELECT s.consumer, o.slot, o.message_id, o.message_type, o.version, o.ordering_key, o.headers,
                 o.content_type, o.enqueued_at, o.payload
             FROM {posta}outbox AS o JOIN {posta}subscription AS s ON s.message_type = o.message_type
             WHERE o.position = ? AND o.slot = ? ORDER BY s.consumer",
        );
        let rows = rows.to_vec();
        on_thread(connection, "route rows", move |connection| {
            let mut routed = Vec::with_capacity(rows.len());
            for row in rows {
                let copies = copy
                    .bind(row.position)
                    .bind(row.slot.number())
                    .execute(connection)?;
                if copies > 0 {
                    routed.push(row);
                }
            }
            Ok(routed)
        })
        .await
    }

    async fn queued(
        &self,
        connection: &mut Connection,
        consumer: &str,
        slots: RangeInclusive<u8>,
        limit: usize,
    ) -> Result<Vec<QueueRow>, StoreError> {
        let filled = self.sql(
            "SELECT s.value FROM json_each(?) AS s
             WHERE EXISTS (SELECT 1 FROM {posta}queue WHERE consumer = ? AND slot = s.value)",
        );
        let positions = self.sql(
            "SELECT list.value ->> 0, q.position
             FROM json_each(?) AS list CROSS JOIN {posta}queue AS q ON q.position IN (
                 SELECT c.position FROM {posta}queue AS c
                 WHERE c.consumer = ? AND c.slot = list.value ->> 1 AND c.position > list.value ->> 2
                 ORDER BY c.position LIMIT ?)",
        );
        let rows = self.sql(&format!(
            "SELECT position, {COLUMNS} FROM json_each(?) AS p CROSS JOIN {{posta}}queue ON position = p.value"
        ));
        let (consumer, slots) = (consumer.to_owned(), slots.collect::<Vec<u8>>());
        on_thread(connection, "read queued messages", move |connection| {
            let slots = filled
                .bind(Value::json(&slots))
                .bind(consumer.as_str())
                .rows::<BigInt, i64>(connection)?;
            let positions = first_positions(slots.len(), limit, |wanted, count| {
                let lists: Vec<(usize, i64, i64)> = wanted
                    .iter()
                    .map(|(index, after)| (*index, slots[*index], *after))
                    .collect();
                let read = positions
                    .bind(Value::json(&lists))
                    .bind(consumer.as_str())
                    .bind(count)
                    .rows::<(BigInt, BigInt), (i64, i64)>(connection)?;
                Ok(read
                    .into_iter()
                    .map(|(list, position)| (list as usize, position))
                    .collect())
            })?;
            let rows = rows
                .bind(Value::json(&positions))
                .rows::<(BigInt, ColumnTypes), (i64, Columns)>(connection)?;
            let row = |(position, columns)| QueueRow {
                position,
                message: row::envelope(columns),
            };
            Ok(rows.into_iter().map(row).collect())
        })
        .await
    }

    async fn unqueue(
        &self,
        connection: &mut Connection,
        positions: &[i64],
    ) -> Result<usize, StoreError> {
        let remove = self.sql("DELETE FROM {posta}queue WHERE position = ?");
        let positions = positions.to_vec();
        on_thread(
            connection,
            "take messages out of the queue",
            move |connection| {
                positions.into_iter().try_fold(0, |gone, position| {
                    Ok(gone + remove.bind(position).execute(connection)?)
                })
            },
        )
        .await
    }

    async fn queue_depth(
        &self,
        connection: &mut Connection,
        consumer: &str,
        slots: RangeInclusive<u8>,
    ) -> Result<u64, StoreError> {
        let depth = self
            .sql("SELECT COUNT(*) FROM {posta}queue WHERE consumer = ? AND slot BETWEEN ? AND ?")
            .bind(consumer)
            .bind(*slots.start())
            .bind(*slots.end());
        on_thread(connection, "measure a queue", |connection| {
            depth.one::<BigInt, i64>(connection).map(row::number)
        })
        .await
    }
}
