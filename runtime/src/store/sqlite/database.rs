use super::classify::classify;
use super::{Connection, Manager, SqliteStore, enqueue, migration};
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
        _connection: &mut Connection,
        _tables: &Tables,
        _scheduled: &[NewScheduled],
    ) -> Result<(), StoreError> {
        todo!()
    }

    async fn cancel_scheduled(
        _connection: &mut Connection,
        _tables: &Tables,
        _id: MessageId,
    ) -> Result<bool, StoreError> {
        todo!()
    }

    fn classify(error: &diesel::result::Error) -> StoreErrorKind {
        classify(error)
    }
}
