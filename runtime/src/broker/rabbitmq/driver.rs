use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;

use super::connection::{Connection, Health};
use super::reactor::Reactor;
use super::slot::ConnectionSlot;
use super::{
    Provision, RabbitMqOptions, RabbitMqPublisher, RabbitMqSubscription, queue_depth, removal,
    topology,
};
use crate::broker::{
    BrokerDriver, BrokerError, BrokerErrorKind, Capabilities, MaybeSubscription, PartitionQueue,
    Publisher, QueueDepth, Subscription, Topology,
};
use crate::store::Database;

/// RabbitMQ, reached through one connection for publishing and one for consuming. Clones share
/// them.
///
/// The inherent methods need no database type; the trait [`BrokerDriver`] calls them.
#[derive(Clone)]
pub struct RabbitMq {
    shared: Arc<Shared>,
}

/// What publishers and subscriptions of one driver have in common.
pub(super) struct Shared {
    pub(super) options: RabbitMqOptions,
    reactor: Mutex<Option<Reactor>>,
    publishing: ConnectionSlot,
    consuming: ConnectionSlot,
    /// What the broker takes at most for one message, in bytes, as far as it has said so.
    pub(super) broker_message_bytes_max: AtomicUsize,
}

impl RabbitMq {
    /// A driver with these options. Nothing happens before something is asked of it: each operation
    /// first checks the options, as [`RabbitMqOptions::check`] does.
    #[must_use]
    pub fn new(options: RabbitMqOptions) -> Self {
        Self {
            shared: Arc::new(Shared {
                options,
                reactor: Mutex::new(None),
                publishing: ConnectionSlot::new("publishing"),
                consuming: ConnectionSlot::new("consuming"),
                broker_message_bytes_max: AtomicUsize::new(usize::MAX),
            }),
        }
    }

    /// The options.
    #[must_use]
    pub fn options(&self) -> &RabbitMqOptions {
        &self.shared.options
    }

    /// Why the broker has blocked publishing, if it has: an alarm of its memory or disk. Consuming
    /// goes on meanwhile.
    pub async fn blocked(&self) -> Option<String> {
        match self.shared.publishing.current().await?.health() {
            Health::Blocked(reason) => Some(reason),
            Health::Open | Health::Lost(_) => None,
        }
    }

    /// Provides exchanges, queues and bindings as configured; see [`BrokerDriver::declare`].
    ///
    /// # Cancel safety
    /// Safe: declarations are idempotent, and those that were sent may take effect.
    ///
    /// # Errors
    /// `Topology` when something exists with other arguments, or does not exist and may not be
    /// made; all other queues are provided nevertheless.
    pub async fn provide(&self, topology: &Topology) -> Result<(), BrokerError> {
        topology::provide(&self.shared, topology).await
    }

    /// A publisher with a channel of its own.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Errors
    /// `Blocked` while the broker blocks the connection; otherwise as connecting and declaring the
    /// exchange fail.
    pub async fn publish(&self) -> Result<RabbitMqPublisher, BrokerError> {
        RabbitMqPublisher::open(self.shared.clone()).await
    }

    /// How a partition's queue is, by the broker's own count.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Errors
    /// `Topology` when the queue is missing; otherwise as connecting fails.
    pub async fn depth_of(&self, queue: &PartitionQueue) -> Result<QueueDepth, BrokerError> {
        queue_depth::of(&self.shared, queue).await
    }

    /// A subscription with a channel of its own.
    ///
    /// # Cancel safety
    /// Safe: a subscription that was just being made is closed.
    ///
    /// # Errors
    /// `Topology` when the queue is missing; otherwise as connecting fails.
    pub async fn subscribe_to(
        &self,
        queue: &PartitionQueue,
    ) -> Result<RabbitMqSubscription, BrokerError> {
        RabbitMqSubscription::open(self.shared.clone(), queue).await
    }

    /// A subscription to what the broker gave up on for a consumer, with a channel of its own.
    ///
    /// # Cancel safety
    /// As [`RabbitMq::subscribe_to`].
    ///
    /// # Errors
    /// As [`RabbitMq::subscribe_to`].
    pub async fn subscribe_to_dead(
        &self,
        consumer: &str,
    ) -> Result<RabbitMqSubscription, BrokerError> {
        RabbitMqSubscription::open_dead(self.shared.clone(), consumer).await
    }
}

impl Shared {
    /// The connection for publishing, made now if there is none.
    pub(super) async fn publishing(&self) -> Result<Arc<Connection>, BrokerError> {
        self.publishing.get(&self.options, &self.reactor()?).await
    }

    /// The connection for consuming and declaring, made now if there is none.
    pub(super) async fn consuming(&self) -> Result<Arc<Connection>, BrokerError> {
        self.consuming.get(&self.options, &self.reactor()?).await
    }

    fn reactor(&self) -> Result<Reactor, BrokerError> {
        self.options.check()?;
        let mut reactor = self.reactor.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(reactor) = &*reactor {
            return Ok(reactor.clone());
        }
        let started = Reactor::start().map_err(|error| {
            BrokerError::new(
                "start the thread of the connections",
                BrokerErrorKind::Unavailable,
            )
            .with_source(error)
        })?;
        Ok(reactor.insert(started).clone())
    }
}

impl std::fmt::Debug for RabbitMq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RabbitMq")
            .field(&self.shared.options)
            .finish()
    }
}

impl<D: Database> BrokerDriver<D> for RabbitMq {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            transactional: false,
            single_active_consumer: true,
            delivery_limit: true,
            by_slot: false,
            provides: self.shared.options.provision == Provision::Declare,
            open_to_others: true,
        }
    }

    fn name(&self) -> &'static str {
        "rabbitmq"
    }

    fn address(&self) -> String {
        self.shared.options.address()
    }

    fn exchange(&self) -> Option<&str> {
        Some(&self.shared.options.exchange)
    }

    fn server(&self) -> Option<(&str, u16)> {
        self.shared.options.only_node()
    }

    fn declare<'a>(&'a self, topology: &'a Topology) -> BoxFuture<'a, Result<(), BrokerError>> {
        Box::pin(self.provide(topology))
    }

    fn unbind<'a>(&'a self, topology: &'a Topology) -> BoxFuture<'a, Result<(), BrokerError>> {
        Box::pin(removal::unbind(&self.shared, topology))
    }

    fn depths<'a>(
        &'a self,
        topology: &'a Topology,
    ) -> BoxFuture<'a, Result<Vec<Option<QueueDepth>>, BrokerError>> {
        Box::pin(removal::depths(&self.shared, topology))
    }

    fn remove<'a>(&'a self, topology: &'a Topology) -> BoxFuture<'a, Result<(), BrokerError>> {
        Box::pin(removal::remove(&self.shared, topology))
    }

    fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher<D>>, BrokerError>> {
        Box::pin(async { Ok(Box::new(self.publish().await?) as Box<dyn Publisher<D>>) })
    }

    fn subscribe<'a>(
        &'a self,
        queue: &'a PartitionQueue,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription<D>>, BrokerError>> {
        Box::pin(async move {
            Ok(Box::new(self.subscribe_to(queue).await?) as Box<dyn Subscription<D>>)
        })
    }

    fn publish_timeout(&self) -> Duration {
        self.shared.options.publish_timeout
    }

    fn queue_depth<'a>(
        &'a self,
        queue: &'a PartitionQueue,
    ) -> BoxFuture<'a, Result<Option<QueueDepth>, BrokerError>> {
        Box::pin(async move { self.depth_of(queue).await.map(Some) })
    }

    fn disconnect(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            self.shared.publishing.empty().await;
            self.shared.consuming.empty().await;
        })
    }

    fn subscribe_dead<'a>(
        &'a self,
        consumer: &'a str,
    ) -> BoxFuture<'a, Result<MaybeSubscription<D>, BrokerError>> {
        Box::pin(async move {
            let subscription = self.subscribe_to_dead(consumer).await?;
            Ok(Some(Box::new(subscription) as Box<dyn Subscription<D>>))
        })
    }
}
