use std::fmt;
use std::ops::{Deref, DerefMut};

use diesel_async::{AsyncConnection, TransactionManager};

use super::{Database, PooledConnection, StoreError};

type Manager<D> = <<D as Database>::Connection as AsyncConnection>::TransactionManager;

/// An open transaction on a pooled connection, made by [`super::Store::begin`].
///
/// It ends by `commit` or `rollback`. Dropped in any other way (a cancelled future, a panic) it
/// takes its connection with it: the connection is closed, the database rolls back, and the pool
/// makes a new one. So a connection never returns to the pool with a transaction open on it.
pub struct Session<D: Database> {
    connection: Option<PooledConnection<D>>,
    /// Held to the end where a database lets only one transaction write at a time.
    _turn: Option<tokio::sync::OwnedSemaphorePermit>,
}

impl<D: Database> Session<D> {
    /// Wraps a connection on which a transaction is about to begin.
    pub fn new(
        connection: PooledConnection<D>,
        turn: Option<tokio::sync::OwnedSemaphorePermit>,
    ) -> Self {
        Self {
            connection: Some(connection),
            _turn: turn,
        }
    }

    /// Commits, or fails if a statement of the transaction has failed. When it returns an error the
    /// outcome is unknown if the error is `Unavailable` (the connection may have broken after the
    /// commit), and the transaction is rolled back otherwise.
    ///
    /// # Cancel safety
    /// Safe for the pool (the connection is discarded); the outcome is then unknown.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        match D::commit(&mut *self).await {
            Ok(()) => {
                self.give_back();
                Ok(())
            }
            Err(error) => Err(StoreError::new("commit", D::classify(&error), error)),
        }
    }

    /// Rolls back. A failure to do so closes the connection, which rolls back too, and is no error.
    ///
    /// # Cancel safety
    /// Safe: the connection is then discarded.
    pub async fn rollback(mut self) {
        match Manager::<D>::rollback_transaction(&mut *self).await {
            Ok(()) => self.give_back(),
            Err(error) => tracing::debug!(
                error = &error as &dyn std::error::Error,
                "rollback failed; the connection is closed instead"
            ),
        }
    }

    /// Gives the connection back to its pool; only for one whose transaction has ended.
    fn give_back(mut self) {
        drop(self.connection.take());
    }
}

impl<D: Database> Deref for Session<D> {
    type Target = D::Connection;

    fn deref(&self) -> &Self::Target {
        self.connection
            .as_ref()
            .expect("a session has its connection until it ends")
    }
}

impl<D: Database> DerefMut for Session<D> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.connection
            .as_mut()
            .expect("a session has its connection until it ends")
    }
}

impl<D: Database> Drop for Session<D> {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            drop(deadpool::managed::Object::take(connection));
        }
    }
}

impl<D: Database> fmt::Debug for Session<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("database", &D::NAME)
            .finish_non_exhaustive()
    }
}
