use super::classify::classify;
use super::{Connection, Manager, SqliteStore, enqueue, migration};
use crate::message::Envelope;
use crate::store::{Database, StoreError, StoreErrorKind, Tables};

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

    fn classify(error: &diesel::result::Error) -> StoreErrorKind {
        classify(error)
    }
}
