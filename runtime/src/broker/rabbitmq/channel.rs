use std::future::Future;
use std::sync::Arc;

use tokio::task::JoinHandle;

use super::classify::{self, Purpose};
use super::connection::{Connection, Health};
use crate::broker::{BrokerError, BrokerErrorKind};

/// A channel of its own, with a deadline on every answer.
///
/// Dropped, it closes in the background; so it closes however its owner ends.
pub(super) struct Channel {
    lapin: Option<lapin::Channel>,
    connection: Arc<Connection>,
}

impl Channel {
    /// Opens a channel.
    pub(super) async fn open(connection: Arc<Connection>) -> Result<Self, BrokerError> {
        let opening = connection.lapin().create_channel();
        let lapin = answer("open a channel", Purpose::Connect, &connection, opening).await?;
        Ok(Self {
            lapin: Some(lapin),
            connection,
        })
    }

    pub(super) fn lapin(&self) -> &lapin::Channel {
        self.lapin
            .as_ref()
            .expect("a channel has its lapin channel until it is closed")
    }

    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    /// Waits for the broker's answer, at most for the configured time.
    pub(super) async fn ask<T>(
        &self,
        operation: impl Into<String>,
        purpose: Purpose,
        question: impl Future<Output = lapin::Result<T>>,
    ) -> Result<T, BrokerError> {
        answer(operation, purpose, &self.connection, question).await
    }

    /// An error if the channel can no longer be used.
    pub(super) fn ensure_open(&self, operation: impl Into<String>) -> Result<(), BrokerError> {
        if let Health::Lost(reason) = self.connection.health() {
            return Err(
                BrokerError::new(operation, BrokerErrorKind::Unavailable).with_source(reason)
            );
        }
        if !self.lapin().status().connected() {
            return Err(BrokerError::new(operation, BrokerErrorKind::Closed)
                .with_source("the channel was closed"));
        }
        Ok(())
    }

    /// Closes in the background, at most for the configured time; `keep` is dropped only
    /// afterwards.
    pub(super) fn close<K: Send + 'static>(mut self, keep: K) -> Option<JoinHandle<()>> {
        self.begin_close(keep)
    }

    fn begin_close<K: Send + 'static>(&mut self, keep: K) -> Option<JoinHandle<()>> {
        let channel = self.lapin.take()?;
        let connection = self.connection.clone();
        let timeout = connection.answer_timeout();
        let reactor = connection.reactor().clone();
        Some(reactor.spawn(async move {
            if channel.status().connected() {
                let closing = channel.close(200, "OK".into());
                match tokio::time::timeout(timeout, closing).await {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%error, "a channel was closed already"),
                    Err(_elapsed) => tracing::debug!("a channel did not close in time"),
                }
            }
            drop(keep);
            drop(channel);
            drop(connection);
        }))
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        let _ = self.begin_close(());
    }
}

async fn answer<T>(
    operation: impl Into<String>,
    purpose: Purpose,
    connection: &Connection,
    question: impl Future<Output = lapin::Result<T>>,
) -> Result<T, BrokerError> {
    let timeout = connection.answer_timeout();
    match tokio::time::timeout(timeout, question).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(classify::broker_error(operation, purpose, &error)),
        Err(_elapsed) => Err(BrokerError::new(operation, BrokerErrorKind::Timeout)
            .with_source(format!("no answer within {timeout:?}"))),
    }
}
