use futures_util::{FutureExt, StreamExt};
use lapin::message::Delivery;
use lapin::options::{BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use tokio::task::JoinHandle;

use super::Shared;
use super::channel::Channel;
use super::classify::{self, Purpose};
use crate::broker::{BrokerError, BrokerErrorKind};

/// A consumer on a channel of its own.
///
/// However it ends, the channel is closed first and the consumer let go of only then: dropping a
/// consumer cancels it, and a queue whose consumer is cancelled goes on with the next one while the
/// first still has a backlog.
pub(super) struct Intake {
    /// Both are there until it is closed.
    open: Option<(Channel, lapin::Consumer)>,
}

impl Intake {
    /// Subscribes to a queue.
    pub(super) async fn open(shared: &Shared, queue: &str) -> Result<Self, BrokerError> {
        let prefetch = shared.options.prefetch;
        let operation = || format!("subscribe to the queue {queue:?}");
        let name = ShortString::try_new(queue).map_err(|error| {
            BrokerError::new(operation(), BrokerErrorKind::Configuration).with_source(error)
        })?;
        let channel = Channel::open(shared.consuming().await?).await?;
        let qos = channel
            .lapin()
            .basic_qos(prefetch, BasicQosOptions { global: false });
        channel.ask(operation(), Purpose::Use, qos).await?;
        // Not exclusive: the queue has a single active consumer, and the next one in line must be
        // able to subscribe.
        let consuming = channel.lapin().basic_consume(
            name,
            ShortString::default(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let consumer = channel
            .ask(operation(), Purpose::Provide, consuming)
            .await?;
        tracing::debug!(queue, prefetch, "subscribed");
        Ok(Self {
            open: Some((channel, consumer)),
        })
    }

    /// The channel, until it is closed.
    pub(super) fn channel(&self) -> &Channel {
        &self
            .open
            .as_ref()
            .expect("an intake is open until it is closed")
            .0
    }

    /// Waits for the first delivery and takes it with all that are there already, at most `limit`.
    /// Waits at one point only, so that nothing is lost by a cancelled call.
    ///
    /// # Errors
    /// When no more deliveries come. Those that are still in memory then are not handed out: they
    /// cannot be acknowledged, and the broker has given them to the next consumer.
    pub(super) async fn take(&mut self, limit: usize) -> Result<Vec<Delivery>, End> {
        let (channel, consumer) = self
            .open
            .as_mut()
            .expect("an intake is open until it is closed");
        let mut item = consumer.next().await;
        let mut deliveries = Vec::new();
        loop {
            match item {
                Some(Ok(delivery)) => deliveries.push(delivery),
                end => return Err(End::of(end)),
            }
            if deliveries.len() >= limit {
                break;
            }
            match consumer.next().now_or_never() {
                Some(next) => item = next,
                None => break,
            }
        }
        if channel.lapin().status().connected() {
            return Ok(deliveries);
        }
        // The reason stands at the end of the stream, behind what can no longer be acknowledged.
        while let Some(item) = consumer.next().now_or_never() {
            if !matches!(item, Some(Ok(_))) {
                return Err(End::of(item));
            }
        }
        Err(End::Silent)
    }

    /// Closes in the background.
    pub(super) fn close(mut self) -> Option<JoinHandle<()>> {
        self.begin_close()
    }

    fn begin_close(&mut self) -> Option<JoinHandle<()>> {
        let (channel, consumer) = self.open.take()?;
        channel.close(consumer)
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        let _ = self.begin_close();
    }
}

/// Why no more deliveries come.
pub(super) enum End {
    /// The channel or the connection failed.
    Failed(lapin::Error),
    /// The stream ended without an error.
    Silent,
}

impl End {
    fn of(item: Option<lapin::Result<Delivery>>) -> Self {
        match item {
            Some(Err(error)) => Self::Failed(error),
            Some(Ok(_)) | None => Self::Silent,
        }
    }

    /// The end as an error, given the channel that it came by.
    pub(super) fn error(self, operation: String, channel: &Channel) -> BrokerError {
        match self {
            Self::Failed(error) => classify::broker_error(operation, Purpose::Use, &error),
            Self::Silent => match channel.ensure_open(operation.as_str()) {
                Err(error) => error,
                Ok(()) => BrokerError::new(operation, BrokerErrorKind::Closed).with_source(
                    "the broker cancelled the consumer: its queue was deleted or moved",
                ),
            },
        }
    }
}
