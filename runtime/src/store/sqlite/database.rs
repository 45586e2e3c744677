use super::classify::classify;
use super::{Connection, Manager, SqliteStore, enqueue, migration, scheduled};
use crate::message::{Envelope, MessageId};
use crate::store::{Database, NewScheduled, StoreError, StoreErrorKind, Tables};

/// SQLite in one file: the embedded default.
#[derive(Clone, Copy, Debug)]
pub enum Sqlite {}

impl Database for Sqlite {
    type Connection = Connection;
    type Manager = Manager;
    type Store = SqliteStore;

    const NAME: &'static str = "sqlite";

    fn migration_sql(tables: &Tables) -> String {
        migration::sql(tables)
    }

    async fn insert_outbox(
        connection: &mut Connection,
        tables: &Tables,
        envelopes: &[Envelope],
    ) -> Result<(), StoreError> {
        enqueue::insert(connection, tables, envelopes).await
    }

    async fn insert_scheduled(
        connection: &mut Connection,
        tables: &Tables,
        scheduled: &[NewScheduled],
    ) -> Result<(), StoreError> {
        scheduled::insert(connection, tables, scheduled).await
    }

    async fn cancel_scheduled(
        connection: &mut Connection,
        tables: &Tables,
        id: MessageId,
    ) -> Result<bool, StoreError> {
        scheduled::cancel(connection, tables, id).await
    }

    fn classify(error: &diesel::result::Error) -> StoreErrorKind {
        classify(error)
    }
}
