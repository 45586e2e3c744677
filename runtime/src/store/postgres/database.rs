use diesel_async::{
    AnsiTransactionManager, AsyncPgConnection, SimpleAsyncConnection, TransactionManager,
};

use super::classify::{classify, spoils_connection};
use super::connect::Manager;
use super::{PostgresStore, enqueue, migration, scheduled};
use crate::message::{Envelope, MessageId};
use crate::store::{Database, NewScheduled, StoreError, StoreErrorKind, Tables};

/// To COMMIT after a statement has failed, PostgreSQL answers that all is well, and rolls back. If
/// the application has swallowed the error, its message would then be acknowledged without effect.
/// Any other statement says that the transaction is over; this one, which makes what is deferred be
/// checked just before COMMIT would do so, costs least. Both go in one round trip.
const COMMIT: &str = "SET CONSTRAINTS ALL IMMEDIATE; COMMIT";

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

    async fn insert_scheduled(
        connection: &mut AsyncPgConnection,
        tables: &Tables,
        messages: &[NewScheduled],
    ) -> Result<(), StoreError> {
        if messages.is_empty() {
            return Ok(());
        }
        let sql = scheduled::insert_sql(tables);
        scheduled::insert(&sql, messages)
            .run(connection, scheduled::INSERT)
            .await?;
        Ok(())
    }

    async fn cancel_scheduled(
        connection: &mut AsyncPgConnection,
        tables: &Tables,
        id: MessageId,
    ) -> Result<bool, StoreError> {
        let sql = scheduled::cancel_sql(tables);
        let cancelled = scheduled::cancel(&sql, id)
            .run(connection, scheduled::CANCEL)
            .await?;
        Ok(cancelled > 0)
    }

    async fn commit(connection: &mut AsyncPgConnection) -> diesel::QueryResult<()> {
        connection.batch_execute(COMMIT).await?;
        // It ends savepoints too, however many there are.
        *AnsiTransactionManager::transaction_manager_status_mut(connection) = Default::default();
        Ok(())
    }

    fn classify(error: &diesel::result::Error) -> StoreErrorKind {
        classify(error)
    }

    fn spoils_connection(error: &diesel::result::Error) -> bool {
        spoils_connection(error)
    }
}
