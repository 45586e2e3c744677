use deadpool::managed::{Manager as _, Pool};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use futures_util::{FutureExt, StreamExt};
use tokio::sync::Mutex;

use super::classify::failed;
use super::connect::Manager;
use super::statement::qualified;
use super::store::unreachable;
use crate::store::{StoreError, Tables};

/// The wake-ups of other processes, on the channel `<schema>_wake`.
///
/// A notification is empty, outside any transaction of the application, and allowed to get lost:
/// payloads have a size limit, commits that notify wait for each other, and a listener can be away.
/// It listens on a connection of its own beside the pool, since a pooled one belongs to whoever
/// comes next.
pub(super) struct Listener {
    listen: String,
    notify: String,
    connection: Mutex<Option<AsyncPgConnection>>,
}

impl Listener {
    pub(super) fn new(tables: &Tables) -> Self {
        Self {
            listen: qualified(tables, r#"LISTEN "{name}_wake""#),
            notify: qualified(tables, r#"NOTIFY "{name}_wake""#),
            connection: Mutex::new(None),
        }
    }

    /// Sends a wake-up with the commit of this transaction.
    pub(super) async fn notify(
        &self,
        connection: &mut AsyncPgConnection,
    ) -> Result<(), StoreError> {
        let result = connection.batch_execute(&self.notify).await;
        result.map_err(|error| failed(connection, "notify other processes", error))
    }

    /// Waits for a wake-up. Returns at once when it had to listen anew: something may have been
    /// said meanwhile.
    ///
    /// Whoever is cancelled while waiting leaves the connection, and what arrives on it, to the
    /// next caller.
    pub(super) async fn notified(&self, pool: &Pool<Manager>) -> Result<(), StoreError> {
        let mut slot = self.connection.lock().await;
        if let Some(connection) = slot.as_mut() {
            if heard(connection).await {
                return Ok(());
            }
            *slot = None;
        }
        let mut connection = pool
            .manager()
            .create()
            .await
            .map_err(|error| unreachable(deadpool::managed::PoolError::Backend(error)))?;
        let result = connection.batch_execute(&self.listen).await;
        result.map_err(|error| failed(&mut connection, "listen to other processes", error))?;
        *slot = Some(connection);
        Ok(())
    }
}

/// Waits for a notification and takes all that are there; `false` if the connection is lost.
async fn heard(connection: &mut AsyncPgConnection) -> bool {
    let mut notifications = std::pin::pin!(connection.notifications_stream());
    let mut heard = matches!(notifications.next().await, Some(Ok(_)));
    while let Some(Some(notification)) = notifications.next().now_or_never() {
        heard = heard && notification.is_ok();
        if !heard {
            break;
        }
    }
    heard
}
