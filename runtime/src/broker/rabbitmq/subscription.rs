use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::future::{BoxFuture, join_all};
use lapin::options::BasicAckOptions;

use super::classify::Purpose;
use super::intake::Intake;
use super::{Shared, properties, queue_depth, topology};
use crate::broker::{
    BrokerError, BrokerErrorKind, Delivery, DeliveryTag, PartitionQueue, QueueDepth, Subscription,
};
use crate::store::Database;

/// The deliveries of one partition's queue, over a channel of its own.
///
/// Dropped without [`Subscription::close`], it closes in the background, in the same order: never a
/// cancelled consumer first.
pub struct RabbitMqSubscription {
    queue: String,
    /// There until the subscription fails or is closed.
    intake: Option<Intake>,
    /// Handed out and not acknowledged, by tag: what a multiple acknowledgement would take along.
    outstanding: BTreeSet<u64>,
}

impl RabbitMqSubscription {
    pub(super) async fn open(
        shared: Arc<Shared>,
        queue: &PartitionQueue,
    ) -> Result<Self, BrokerError> {
        Self::open_named(shared, topology::queue_name(queue)).await
    }

    pub(super) async fn open_dead(
        shared: Arc<Shared>,
        consumer: &str,
    ) -> Result<Self, BrokerError> {
        Self::open_named(shared, topology::dead_queue_name(consumer)).await
    }

    async fn open_named(shared: Arc<Shared>, queue: String) -> Result<Self, BrokerError> {
        let intake = Some(Intake::open(&shared, &queue).await?);
        Ok(Self {
            queue,
            intake,
            outstanding: BTreeSet::new(),
        })
    }

    /// Waits for deliveries; see [`Subscription::receive`], whose contract it keeps.
    ///
    /// # Cancel safety
    /// Safe: it waits for the first delivery only, and takes that and the rest without waiting in
    /// between.
    ///
    /// # Errors
    /// `Closed` with the broker's text when it closed the channel or cancelled the consumer,
    /// `Unavailable` when the connection is lost. The subscription has then ended.
    pub async fn receive_up_to(&mut self, limit: usize) -> Result<Vec<Delivery>, BrokerError> {
        let operation = format!("receive from the queue {:?}", self.queue);
        let Some(intake) = &mut self.intake else {
            return Err(ended(operation));
        };
        match intake.take(limit).await {
            Ok(deliveries) => {
                self.outstanding
                    .extend(deliveries.iter().map(|delivery| delivery.delivery_tag));
                Ok(deliveries.into_iter().map(delivered).collect())
            }
            Err(end) => {
                let error = end.error(operation, intake.channel());
                // Nothing comes after the end; what is left of the channel goes now.
                self.intake = None;
                Err(error)
            }
        }
    }

    /// Acknowledges; see [`Subscription::acknowledge`], whose contract it keeps.
    ///
    /// The broker does not answer an acknowledgement: success means that it was handed to the
    /// network on a channel that was open.
    ///
    /// # Cancel safety
    /// Safe: acknowledgements are queued in order before it first waits.
    ///
    /// # Errors
    /// When the channel is dead, or the network takes nothing in time.
    pub async fn acknowledge_all(&mut self, tags: &[DeliveryTag]) -> Result<(), BrokerError> {
        let operation = format!("acknowledge to the queue {:?}", self.queue);
        let Some(intake) = &self.intake else {
            return Err(ended(operation));
        };
        let channel = intake.channel();
        channel.ensure_open(operation.as_str())?;
        let acknowledgements = plan(&mut self.outstanding, tags);
        let sending =
            join_all(acknowledgements.into_iter().map(|(tag, multiple)| {
                channel.lapin().basic_ack(tag, BasicAckOptions { multiple })
            }));
        let sent = async {
            let sent = sending.await.into_iter();
            sent.collect::<lapin::Result<Vec<()>>>()
        };
        channel.ask(operation.as_str(), Purpose::Use, sent).await?;
        channel.ensure_open(operation)
    }

    /// Whether the queue is drained; see [`Subscription::is_drained`], whose contract it keeps.
    ///
    /// It asks twice, over the subscription's own channel: what was delivered before the first count
    /// has arrived with the second answer.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Errors
    /// As [`RabbitMqSubscription::receive_up_to`], and when the queue is gone.
    pub async fn check_drained(&mut self) -> Result<bool, BrokerError> {
        let Some(intake) = &self.intake else {
            return Err(ended(format!("look at the queue {:?}", self.queue)));
        };
        let alone = QueueDepth {
            ready: 0,
            consumers: Some(1),
        };
        for _ in 0..2 {
            let depth = queue_depth::ask(intake.channel(), &self.queue).await?;
            if depth != alone || !self.outstanding.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Ends the subscription; see [`Subscription::close`], whose contract it keeps. Bounded by the
    /// configured time for answers.
    pub async fn end(mut self) {
        if let Some(closing) = self.intake.take().and_then(Intake::close) {
            // The task fails only when the reactor ends, and every channel with it.
            let _ = closing.await;
        }
    }
}

fn delivered(delivery: lapin::message::Delivery) -> Delivery {
    let before = properties::delivery_count(&delivery.properties);
    Delivery {
        tag: DeliveryTag(delivery.delivery_tag),
        redelivered: delivery.redelivered || before > 0,
        deliveries: u32::try_from(before.max(0)).unwrap_or(u32::MAX),
        message: properties::decode(&delivery.properties, delivery.data).parse(),
    }
}

fn ended(operation: String) -> BrokerError {
    BrokerError::new(operation, BrokerErrorKind::Closed).with_source("the subscription has ended")
}

/// The fewest acknowledgements for these tags: all that stand before any other outstanding one go
/// together, the others alone. Tags that are not outstanding are left out: the broker closes the
/// channel over one that it does not know.
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
    let alone = wanted.into_iter().map(|tag| (tag, false));
    together
        .map(|tag| (tag, true))
        .into_iter()
        .chain(alone)
        .collect()
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

    fn is_drained(&mut self) -> BoxFuture<'_, Result<bool, BrokerError>> {
        Box::pin(self.check_drained())
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
