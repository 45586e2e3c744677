//! The database as a broker: queue tables in the application's own database, no server.
//!
//! The protocol, before the code:
//!
//! - **Routing.** `subscription` says which consumer takes which message types. Publishing is an
//!   insert into `queue`, one row per consumer that takes the type, in the same transaction that
//!   settles the outbox rows: a message is never published twice and never lost between the two.
//! - **Partitions.** A queue row carries its slot; a partition reads its range of slots. So the
//!   number of partitions changes without moving a row ([`crate::layout`]). One process reads a partition at a time:
//!   the one that holds its lease.
//! - **Acknowledging** is a delete in the handler's transaction. Whatever is not deleted is
//!   delivered again.
//! - **Waking.** A dispatcher that has filled queues wakes this process's subscriptions and, by
//!   notification, other processes'. Polling with a growing interval runs underneath.

mod publisher;
mod subscription;

use std::time::Duration;

use futures_util::future::BoxFuture;

use self::publisher::DatabasePublisher;
use self::subscription::DatabaseSubscription;
use super::{
    BrokerDriver, BrokerError, BrokerErrorKind, Capabilities, PartitionQueue, Publisher,
    QueueDepth, Subscription, Topology,
};
use crate::store::{Database, QueueStore, Store, StoreError};
use crate::supervision::Wake;

/// The driver of the database broker.
pub struct DatabaseBroker<D: Database> {
    store: D::Store,
    filled: Wake,
    poll_interval_max: Duration,
}

impl<D: Database> DatabaseBroker<D> {
    /// The broker in this store's tables. `poll_interval_max` is the longest pause between two
    /// looks at an empty queue.
    #[must_use]
    pub fn new(store: D::Store, poll_interval_max: Duration) -> Self {
        Self {
            store,
            filled: Wake::new(),
            poll_interval_max,
        }
    }

    /// The wake that is called when queues may have been filled.
    pub(crate) fn with_wake(mut self, filled: Wake) -> Self {
        self.filled = filled;
        self
    }
}

impl<D: Database> BrokerDriver<D> for DatabaseBroker<D> {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            transactional: true,
            single_active_consumer: false,
            delivery_limit: false,
            by_slot: true,
            provides: true,
            open_to_others: false,
        }
    }

    fn name(&self) -> &'static str {
        D::NAME
    }

    fn address(&self) -> String {
        format!("{} queue tables", D::NAME)
    }

    fn declare<'a>(&'a self, topology: &'a Topology) -> BoxFuture<'a, Result<(), BrokerError>> {
        Box::pin(async move {
            let subscribe = async {
                let mut session = self.store.begin().await?;
                self.store
                    .subscribe(&mut session, &topology.consumer, &topology.types)
                    .await?;
                session.commit().await
            };
            subscribe
                .await
                .map_err(|error| unavailable("record a subscription", error))
        })
    }

    fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher<D>>, BrokerError>> {
        let publisher = DatabasePublisher::<D>::new(self.store.clone());
        Box::pin(async move { Ok(Box::new(publisher) as Box<dyn Publisher<D>>) })
    }

    fn subscribe<'a>(
        &'a self,
        queue: &'a PartitionQueue,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription<D>>, BrokerError>> {
        let subscription = DatabaseSubscription::<D>::new(
            self.store.clone(),
            queue.clone(),
            self.filled.listen(),
            self.poll_interval_max,
        );
        Box::pin(async move { Ok(Box::new(subscription) as Box<dyn Subscription<D>>) })
    }

    fn queue_depth<'a>(
        &'a self,
        queue: &'a PartitionQueue,
    ) -> BoxFuture<'a, Result<Option<QueueDepth>, BrokerError>> {
        Box::pin(async move {
            let look = async {
                let mut session = self.store.begin_read().await?;
                let (consumer, slots) = (&queue.consumer, queue.slots());
                let first = self.store.queued(&mut session, consumer, slots, 1).await?;
                session.commit().await?;
                Ok(QueueDepth {
                    ready: first.len() as u64,
                    consumers: None,
                })
            };
            let looked: Result<QueueDepth, StoreError> = look.await;
            looked
                .map(Some)
                .map_err(|error| unavailable("look at a queue", error))
        })
    }
}

fn unavailable(operation: &str, error: StoreError) -> BrokerError {
    BrokerError::new(operation, BrokerErrorKind::Unavailable).with_source(error)
}
