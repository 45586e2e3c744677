use std::collections::HashSet;

use diesel::sql_types::BigInt;

use super::connection::on_thread;
use super::{Connection, SqliteStore, lease, row};
use crate::message::{MessageId, OrderingKey};
use crate::store::{Admission, Fence, InboxStore, StoreError};

impl InboxStore for SqliteStore {
    async fn admit(
        &self,
        connection: &mut Connection,
        consumer: &str,
        fence: &Fence,
        ids: &[MessageId],
        keys: &[OrderingKey],
    ) -> Result<Admission, StoreError> {
        let insert = self.sql(
            "INSERT INTO {posta}inbox (consumer, message_id) VALUES (?, ?) ON CONFLICT DO NOTHING",
        );
        let on_hold = self.sql(
            "SELECT COUNT(*) FROM (
                 SELECT 1 FROM {posta}retry WHERE consumer = ? AND ordering_key = ? LIMIT 1)",
        );
        let mut ids = ids.to_vec();
        // In the order of the primary key: neighbours on a page are written together.
        ids.sort_unstable();
        let keys: HashSet<OrderingKey> = keys.iter().cloned().collect();
        let (store, consumer, fence) = (self.clone(), consumer.to_owned(), fence.clone());
        on_thread(connection, "admit deliveries", move |connection| {
            let mut fresh = HashSet::new();
            for id in ids {
                let inserted = insert
                    .bind(consumer.as_str())
                    .bind(id.as_uuid())
                    .execute(connection)?;
                if inserted == 1 {
                    fresh.insert(id);
                }
            }
            if !lease::holds_partition(&store, connection, &consumer, &fence)? {
                return Ok(Admission::LeaseLost);
            }
            let mut held = HashSet::new();
            for key in keys {
                let rows = on_hold.bind(consumer.as_str()).bind(key.as_str());
                if rows.one::<BigInt, i64>(connection)? > 0 {
                    held.insert(key);
                }
            }
            Ok(Admission::Admitted { fresh, held })
        })
        .await
    }

    async fn handled(
        &self,
        connection: &mut Connection,
        consumer: &str,
    ) -> Result<u64, StoreError> {
        let count = self
            .sql("SELECT COUNT(*) FROM {posta}inbox WHERE consumer = ?")
            .bind(consumer);
        on_thread(connection, "count handled messages", |connection| {
            count.one::<BigInt, i64>(connection).map(row::number)
        })
        .await
    }
}
