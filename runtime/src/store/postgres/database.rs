use diesel_async::AsyncPgConnection;

use super::classify::classify;
use super::connect::Manager;
use super::{PostgresStore, enqueue, migration};
use crate::message::Envelope;
use crate::store::{Database, StoreError, StoreErrorKind, Tables};

/// PostgreSQL, from version 14: `type Db = posta::Postgres;`.
#[derive(Clone, Copy, Debug)]
pub struct Postgres;

impl Database for Postgres {
    type Connection = AsyncPgConnection;
    type Manager = Manager;
    type Store = PostgresStore;

    const NAME: &'static str = "postgresql";

    fn migration_sql(tables: &Tables) -> String {
        migration::sql(tables)
    }

    async fn insert_outbox(
        connection: &mut AsyncPgConnection,
        tables: &Tables,
        envelopes: &[Envelope],
    ) -> Result<(), StoreError> {
        if envelopes.is_empty() {
            return Ok(());
        }
        let sql = enqueue::sql(tables);
        enqueue::statement(&sql, envelopes)
            .run(connection, enqueue::OPERATION)
            .await?;
        Ok(())
    }

    fn classify(error: &diesel::result::Error) -> StoreErrorKind {
        classify(error)
    }
}
