use diesel::{QueryResult, SqliteConnection};
use diesel_async::pooled_connection::AsyncDieselConnectionManager;
use diesel_async::sync_connection_wrapper::SyncConnectionWrapper;

use super::BlockingThread;
use super::classify::failed;
use crate::store::StoreError;

/// diesel-async's connection to SQLite, its statements on [`BlockingThread`]s.
pub type Connection = SyncConnectionWrapper<SqliteConnection, BlockingThread>;

/// diesel-async's manager of such connections, for a pool of the application's own.
pub type Manager = AsyncDieselConnectionManager<Connection>;

/// Runs all statements of one operation in one hop to a blocking thread.
pub(super) async fn on_thread<T: Send + 'static>(
    connection: &mut Connection,
    operation: &'static str,
    statements: impl FnOnce(&mut SqliteConnection) -> QueryResult<T> + Send + 'static,
) -> Result<T, StoreError> {
    connection
        .spawn_blocking(statements)
        .await
        .map_err(|error| failed(operation, error))
}
