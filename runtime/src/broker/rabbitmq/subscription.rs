use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use futures_util::{FutureExt, StreamExt};
use lapin::options::{BasicAckOptions, BasicConsumeOptions, BasicQosOptions};
use lapin::types::{FieldTable, ShortString};
use tokio::task::JoinHandle;

use super::channel::Channel;
use super::classify::{self, Purpose};
use super::{Shared, properties};
use crate::broker::{
    BrokerError, BrokerErrorKind, Delivery, DeliveryTag, PartitionQueue, Subscription,
};
use crate::store::Database;

/// The deliveries of one partition's queue, over a channel of its own.
///
/// Dropped without [`Subscription::close`], it closes the channel in the background, in the same order: never a cancelled consumer first.
pub struct RabbitMqSubscription {
    queue: String,
    /// Both are there until the subscription is closed or dropped.
    open: Option<(Channel, lapin::Consumer)>,
    /// Handed out and not acknowledged, by tag: what a multiple acknowledgement would take along.
    outstanding: BTreeSet<u64>,
}

impl RabbitMqSubscription {
    pub(super) async fn open(
        shared: Arc<Shared>,
        queue: &PartitionQueue,
    ) -> Result<Self, BrokerError> {
        let queue = super::topology::queue_name(queue);
        let operation = || format!("subscribe to the queue {queue:?}");
        let name = ShortString::try_new(queue.as_str()).map_err(|error| {
            BrokerError::new(operation(), BrokerErrorKind::Configuration).with_source(error)
        })?;
        let connection = shared.consuming().await?;
        let channel = Channel::open(connection).await?;
        let qos = BasicQosOptions { global: false };
        let qos = channel.lapin().basic_qos(shared.options.prefetch, qos);
        channel.ask(operation(), Purpose::Use, qos).await?;
        // Not exclusive: the queue has a single active consumer, and the next one in line must be able to subscribe.
        let consuming = channel.lapin().basic_consume(
            name,
            ShortString::default(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        );
        let consumer = channel
            .ask(operation(), Purpose::Provide, consuming)
            .await?;
        tracing::debug!(%queue, prefetch = shared.options.prefetch, "subscribed");
        Ok(Self {
            queue,
            open: Some((channel, consumer)),
            outstanding: BTreeSet::new(),
        })
    }

    /// Waits for deliveries; see [`Subscription::receive`], whose contract it keeps.
    ///
    /// # Cancel safety
    /// Safe: it waits for the first delivery only, and takes that and the rest without waiting in between.
    ///
    /// # Errors
    /// `Closed` with the broker's text when it closed the channel or cancelled the consumer, `Unavailable` when the connection is lost.
    /// Deliveries that were still in memory then are not handed out: they cannot be acknowledged, and the broker has given them
    /// to the next consumer.
    pub async fn receive_up_to(&mut self, limit: usize) -> Result<Vec<Delivery>, BrokerError> {
        let operation = format!("receive from the queue {:?}", self.queue);
        let Some((channel, consumer)) = &mut self.open else {
            return Err(ended(operation));
        };
        match take(consumer, channel, limit).await {
            Ok(deliveries) => {
                self.outstanding
                    .extend(deliveries.iter().map(|delivery| delivery.delivery_tag));
                Ok(deliveries.into_iter().map(delivered).collect())
            }
            Err(end) => {
                let error = end.error(operation, channel);
                // Nothing comes after the end; what is left of the channel goes now.
                self.close_in_background();
                Err(error)
            }
        }
    }

    /// Acknowledges; see [`Subscription::acknowledge`], whose contract it keeps.
    ///
    /// The broker does not answer an acknowledgement: success means that it was handed to the network on a channel that was open.
    ///
    /// # Cancel safety
    /// Safe: acknowledgements are queued in order before it first waits.
    ///
    /// # Errors
    /// When the channel is dead, or the network takes nothing in time.
    pub async fn acknowledge_all(&mut self, tags: &[DeliveryTag]) -> Result<(), BrokerError> {
        let queue = &self.queue;
        let operation = || format!("acknowledge to the queue {queue:?}");
        let Some((channel, _)) = &self.open else {
            return Err(ended(operation()));
        };
        channel.ensure_open(operation())?;
        let acknowledgements = plan(&mut self.outstanding, tags);
        let sending =
            join_all(acknowledgements.into_iter().map(|(tag, multiple)| {
                channel.lapin().basic_ack(tag, BasicAckOptions { multiple })
            }));
        let sent = async {
            sending
                .await
                .into_iter()
                .collect::<lapin::Result<Vec<()>>>()
        };
        channel.ask(operation(), Purpose::Use, sent).await?;
        channel.ensure_open(operation())
    }

    /// Ends the subscription; see [`Subscription::close`], whose contract it keeps. Bounded by the configured time for answers.
    pub async fn end(mut self) {
        if let Some(closing) = self.close_in_background() {
            // The task fails only when the reactor ends, and every channel with it.
            let _ = closing.await;
        }
    }

    fn close_in_background(&mut self) -> Option<JoinHandle<()>> {
        let (channel, consumer) = self.open.take()?;
        // Dropping a consumer cancels it: it is kept until its channel is closed.
        channel.close(consumer)
    }
}

/// Why no more deliveries come.
enum End {
    /// The channel or the connection failed.
    Failed(lapin::Error),
    /// The stream ended without an error.
    Silent,
}

impl End {
    fn of(item: Option<lapin::Result<lapin::message::Delivery>>) -> Self {
        match item {
            Some(Err(error)) => Self::Failed(error),
            Some(Ok(_)) | None => Self::Silent,
        }
    }

    fn error(self, operation: String, channel: &Channel) -> BrokerError {
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

/// Waits for the first delivery and takes it with all that are there already.
async fn take(
    consumer: &mut lapin::Consumer,
    channel: &Channel,
    limit: usize,
) -> Result<Vec<lapin::message::Delivery>, End> {
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

/// The fewest acknowledgements for these tags: all that stand before any other outstanding one go together, the others alone. Tags that are
/// not outstanding are left out: the broker closes the channel over one that it does not know.
fn plan(outstanding: &mut BTreeSet<u64>, tags: &[DeliveryTag]) -> Vec<(u64, bool)> {
    let mut wanted: BTreeSet<u64> = tags
        .iter()
        .map(|tag| tag.0)
        .filter(|tag| outstanding.contains(tag))
        .collect();
    let mut together = None;
    while let Some(&first) = outstanding.first()
        && wanted.remove(&first)
    {
        outstanding.remove(&first);
        together = Some(first);
    }
    for tag in &wanted {
        outstanding.remove(tag);
    }
    together
        .map(|tag| (tag, true))
        .into_iter()
        .chain(wanted.into_iter().map(|tag| (tag, false)))
        .collect()
}

fn delivered(delivery: lapin::message::Delivery) -> Delivery {
    let redelivered = delivery.redelivered || properties::delivery_count(&delivery.properties) > 0;
    Delivery {
        tag: DeliveryTag(delivery.delivery_tag),
        redelivered,
        message: properties::decode(&delivery.properties, delivery.data).parse(),
    }
}

fn ended(operation: String) -> BrokerError {
    BrokerError::new(operation, BrokerErrorKind::Closed).with_source("the subscription has ended")
}

impl Drop for RabbitMqSubscription {
    fn drop(&mut self) {
        let _ = self.close_in_background();
    }
}

impl std::fmt::Debug for RabbitMqSubscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitMqSubscription")
            .field("queue", &self.queue)
            .field("outstanding", &self.outstanding.len())
            .finish_non_exhaustive()
    }
}

impl<D: Database> Subscription<D> for RabbitMqSubscription {
    fn receive(&mut self, limit: usize) -> BoxFuture<'_, Result<Vec<Delivery>, BrokerError>> {
        Box::pin(self.receive_up_to(limit))
    }

    fn acknowledge<'a>(
        &'a mut self,
        tags: &'a [DeliveryTag],
    ) -> BoxFuture<'a, Result<(), BrokerError>> {
        Box::pin(self.acknowledge_all(tags))
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(self.end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(outstanding: &[u64], tags: &[u64]) -> (Vec<(u64, bool)>, Vec<u64>) {
        let mut outstanding = outstanding.iter().copied().collect();
        let tags: Vec<DeliveryTag> = tags.iter().copied().map(DeliveryTag).collect();
        let plan = plan(&mut outstanding, &tags);
        (plan, outstanding.into_iter().collect())
    }

    #[test]
    fn a_multiple_acknowledgement_takes_nothing_along_that_is_not_meant() {
        assert_eq!(
            planned(&[1, 2, 3, 4], &[1, 2, 3]),
            (vec![(3, true)], vec![4])
        );
        assert_eq!(
            planned(&[1, 2, 3, 4], &[4, 2]),
            (vec![(2, false), (4, false)], vec![1, 3])
        );
        assert_eq!(
            planned(&[1, 2, 3, 4], &[2, 4, 1]),
            (vec![(2, true), (4, false)], vec![3])
        );
        assert_eq!(planned(&[3, 7], &[7, 3]), (vec![(7, true)], vec![]));
    }

    #[test]
    fn a_tag_that_is_not_outstanding_is_never_acknowledged() {
        assert_eq!(planned(&[2], &[1, 2, 2, 9]), (vec![(2, true)], vec![]));
        assert_eq!(planned(&[2], &[1]), (vec![], vec![2]));
        assert_eq!(planned(&[], &[]), (vec![], vec![]));
    }
}
