use std::time::{Duration, Instant};

use super::batch::{Taken, message_id, tags};
use super::disturbance::Interruption;
use super::partition::Partition;
use crate::broker::{BrokerError, Delivery, PartitionQueue, Subscription};
use crate::store::{Admission, Database, Store};
use crate::supervision::Life;

/// What came to a queue of a layout that has gone, after it was found drained: the broker was slow to
/// deliver it, or a process that had been stopped bound the queue once more.
///
/// The latter comes to the queues in use as well, perhaps behind other messages of its key, and is to
/// be handled from there. So each message gets some time in which the inbox may come to know it; one
/// that it does not is this queue's alone, and goes to the retry table.
pub(super) struct Late<'p, D: Database> {
    pub(super) partition: &'p Partition<D>,
    pub(super) queue: &'p PartitionQueue,
}

impl<D: Database> Late<'_, D> {
    /// Takes what is there, a batch of it, and keeps it until it is known what it is.
    pub(super) async fn rescue(
        &self,
        life: &Life,
        subscription: &mut dyn Subscription<D>,
    ) -> Result<(), BrokerError> {
        let (settle, batch) = (self.partition.settle, self.partition.batch);
        let mut rest = Vec::new();
        while rest.len() < batch {
            let room = batch - rest.len();
            let received = tokio::time::timeout(settle, subscription.receive(room));
            let Ok(received) = received.await else {
                break;
            };
            rest.extend(received?);
            self.partition.progress.step();
        }
        let patience = Instant::now() + settle * 16;
        while !rest.is_empty() && !life.is_draining() {
            let over = Instant::now() >= patience;
            let settled = self.settle(subscription, &rest, over).await;
            self.partition.progress.step();
            match settled {
                Ok(Some(left)) => rest = left,
                Ok(None) => return Ok(()),
                Err(Interruption::Broker(error)) => return Err(error),
                // As long as the database is away the inbox learns of nothing either.
                Err(Interruption::Database(error)) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "late messages wait for the database"
                ),
            }
            life.pause(settle.min(Duration::from_secs(1)) / 2).await;
        }
        Ok(())
    }

    /// Acknowledges what the inbox knows and, if the time is over, moves the rest; what is left.
    /// `None` without a lease.
    async fn settle(
        &self,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
        over: bool,
    ) -> Result<Option<Vec<Delivery>>, Interruption> {
        let Self { partition, queue } = *self;
        let Some(fence) = partition.board.any_fence() else {
            return Ok(None);
        };
        let mut session = partition.store.begin().await?;
        let admission = partition.admit(&mut session, &fence, deliveries).await?;
        // It is only asked what is known.
        session.rollback().await;
        let Admission::Admitted { fresh, .. } = admission else {
            return Ok(None);
        };
        let is_fresh =
            |delivery: &&Delivery| message_id(delivery).is_none_or(|id| fresh.contains(&id));
        let (fresh, known): (Vec<&Delivery>, Vec<&Delivery>) =
            deliveries.iter().partition(is_fresh);
        let owned =
            |deliveries: Vec<&Delivery>| deliveries.into_iter().cloned().collect::<Vec<_>>();
        let (fresh, known) = (owned(fresh), owned(known));
        subscription.acknowledge(&tags(&known)).await?;
        if !over || fresh.is_empty() {
            return Ok(Some(fresh));
        }
        tracing::warn!(
            consumer = %queue.consumer,
            queue = queue.name(),
            messages = fresh.len(),
            "messages came late to a queue of a former layout: they run from the retry table"
        );
        match partition.put_off(&fence, subscription, &fresh).await? {
            Taken::Committed { .. } => Ok(Some(Vec::new())),
            Taken::LeaseLost | Taken::Overflow(_) => Ok(None),
        }
    }
}
