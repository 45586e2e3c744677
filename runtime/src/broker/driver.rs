use std::time::Duration;

use futures_util::future::BoxFuture;

use super::{BrokerError, Capabilities, PartitionQueue, Topology};
use crate::message::{Envelope, Malformed};
use crate::store::{Database, OutboxRow, RowId, Session, StoreError};

/// A broker, as the actors see it. Connections are made on demand and made anew after a failure by
/// whoever asks again.
pub trait BrokerDriver<D: Database>: Send + Sync + 'static {
    /// What it can do.
    fn capabilities(&self) -> Capabilities;

    /// The broker's name in telemetry (`messaging.system`).
    fn name(&self) -> &'static str;

    /// Where messages go, for telemetry and logs: never with a password.
    fn address(&self) -> String;

    /// The exchange that messages are published to, for telemetry; `None` where message types are
    /// themselves the destinations.
    fn exchange(&self) -> Option<&str> {
        None
    }

    /// The broker's host and port, for telemetry; `None` where there is none, or several.
    fn server(&self) -> Option<(&str, u16)> {
        None
    }

    /// Sees to it that the consumer's queues and bindings exist, as the configuration says:
    /// declare, verify, or leave alone. Idempotent.
    ///
    /// # Errors
    /// `Topology` when what exists differs: names the object, the argument and both values; nothing
    /// was deleted.
    fn declare<'a>(&'a self, topology: &'a Topology) -> BoxFuture<'a, Result<(), BrokerError>>;

    /// Unbinds these queues from all types, whichever the topology names, in one step for each slot: a
    /// message that comes to none of them any more is followed by none of its key that does. What is
    /// in the queues stays. Idempotent; nothing happens on a broker without queues, and where the
    /// operator provides ([`Capabilities::provides`]).
    ///
    /// # Errors
    /// As [`BrokerDriver::declare`]. What is not there is not bound, and is no error.
    fn unbind<'a>(&'a self, _topology: &'a Topology) -> BoxFuture<'a, Result<(), BrokerError>> {
        Box::pin(async { Ok(()) })
    }

    /// What the broker counts in each of these queues, in the order of the partitions; `None` for one
    /// that is not there.
    ///
    /// # Errors
    /// When the broker is unreachable, or refuses to say it.
    fn depths<'a>(
        &'a self,
        topology: &'a Topology,
    ) -> BoxFuture<'a, Result<Vec<Option<QueueDepth>>, BrokerError>> {
        let none = topology.queues().map(|_| None).collect();
        Box::pin(async { Ok(none) })
    }

    /// Deletes these queues, with whatever is in them: the caller has looked. Idempotent; nothing
    /// happens where the operator provides.
    ///
    /// # Errors
    /// As [`BrokerDriver::declare`].
    fn remove<'a>(&'a self, _topology: &'a Topology) -> BoxFuture<'a, Result<(), BrokerError>> {
        Box::pin(async { Ok(()) })
    }

    /// A publisher of its own, for one dispatcher: its confirms and returns reach nobody else.
    fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher<D>>, BrokerError>>;

    /// The longest time that a publisher waits for the fate of one wave: whoever waits for longer
    /// does not wait for the broker.
    fn publish_timeout(&self) -> Duration {
        Duration::from_secs(60)
    }

    /// Subscribes to one partition's queue.
    fn subscribe<'a>(
        &'a self,
        queue: &'a PartitionQueue,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription<D>>, BrokerError>>;

    /// How a partition's queue is, by the broker's own count: what a process that believes to be
    /// consuming is held against. `None` from a broker that cannot tell. Cheap: it is asked once
    /// per lease period and partition, and counts no messages one by one.
    ///
    /// # Errors
    /// When the queue is missing, or the broker does not answer.
    fn queue_depth<'a>(
        &'a self,
        _queue: &'a PartitionQueue,
    ) -> BoxFuture<'a, Result<Option<QueueDepth>, BrokerError>> {
        Box::pin(async { Ok(None) })
    }

    /// Gives up the connections of this process: publishers and subscriptions fail, and whoever asks
    /// for one gets it over a new connection. Nothing that was confirmed or acknowledged is undone;
    /// what was delivered and not acknowledged is delivered again.
    fn disconnect(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    /// Subscribes to the queue of what the broker gave up on for this consumer; `None` on a broker
    /// that gives up on nothing.
    fn subscribe_dead<'a>(
        &'a self,
        _consumer: &'a str,
    ) -> BoxFuture<'a, Result<MaybeSubscription<D>, BrokerError>> {
        Box::pin(async { Ok(None) })
    }
}

/// What waits in a queue, and who for, as the broker counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueDepth {
    /// Messages that wait to be delivered; those that are delivered and unacknowledged are not
    /// counted. On a broker that would have to count them one by one, 1 if there are any.
    pub ready: u64,
    /// Subscriptions, the active one and those in line; `None` from a broker that knows of none.
    pub consumers: Option<u32>,
}

impl QueueDepth {
    /// Whether nothing waits, and nobody can have anything in hand: where subscriptions are not
    /// counted, it is not known, and not said.
    #[must_use]
    pub fn is_idle(self) -> bool {
        self.ready == 0 && self.consumers == Some(0)
    }
}

/// A subscription, if there is anything to subscribe to.
pub type MaybeSubscription<D> = Option<Box<dyn Subscription<D>>>;

/// What became of one message of a wave.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum PublishOutcome {
    /// The broker has it, in at least one queue.
    Confirmed,
    /// The broker has no queue for it; it kept nothing. The broker's text.
    Returned(String),
    /// The broker refused it (nack); it may take it another time. The broker's text.
    Refused(String),
    /// It is larger than the driver is allowed to send, or than the broker takes: it was not
    /// offered to the broker, and the same again would not be. The driver's text.
    TooLarge(String),
    /// It holds what this broker cannot carry, such as a header that has a meaning of its own
    /// there: as for `TooLarge`. The driver's text.
    Malformed(String),
    /// Not known, since the channel failed first: to be published again, and nobody's attempt.
    Unknown,
}

/// Publishes waves: messages of which no two have the same ordering key, unless the broker is
/// transactional.
pub trait Publisher<D: Database>: Send {
    /// Publishes a wave and waits until the fate of each message is known, within the configured
    /// deadline. One outcome per row, in the same order. Called before the settling transaction,
    /// with no transaction open. Rows are well-formed.
    ///
    /// # Cancel safety
    /// Not safe: after a cancelled call the publisher must be dropped.
    ///
    /// # Errors
    /// When the broker is unreachable, blocked, or too slow: nobody's attempt, nothing is known of
    /// any message; drop the publisher, back off.
    fn publish<'a>(
        &'a mut self,
        wave: &'a [OutboxRow],
    ) -> BoxFuture<'a, Result<Vec<PublishOutcome>, BrokerError>>;

    /// For a transactional broker: publishes rows inside the settling transaction; returns those
    /// that at least one queue took.
    fn publish_within<'a>(
        &'a mut self,
        _session: &'a mut Session<D>,
        rows: &'a [RowId],
    ) -> BoxFuture<'a, Result<Vec<RowId>, StoreError>> {
        let _ = rows;
        Box::pin(async { Ok(Vec::new()) })
    }
}

/// Which delivery, within its subscription: not valid on any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryTag(pub u64);

/// A message as the broker delivered it.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// What to acknowledge it by.
    pub tag: DeliveryTag,
    /// Whether the broker delivered it before, as far as it says.
    pub redelivered: bool,
    /// How often the broker delivered it before, as far as it counts; 0 if it does not.
    pub deliveries: u32,
    /// The message; a foreign publisher's may be malformed.
    pub message: Result<Envelope, Malformed>,
}

/// The deliveries of one partition's queue, in its order.
pub trait Subscription<D: Database>: Send {
    /// Waits for at least one delivery and returns all that are there already, at most `limit`, in
    /// order. What has been returned and not acknowledged is not returned again by the same
    /// subscription, and at most the configured prefetch is unacknowledged.
    ///
    /// # Cancel safety
    /// Safe: no delivery is lost by a cancelled call.
    ///
    /// # Errors
    /// When the channel closed, the consumer was cancelled, or the stream ended: drop the
    /// subscription, subscribe again.
    fn receive(&mut self, limit: usize) -> BoxFuture<'_, Result<Vec<Delivery>, BrokerError>>;

    /// For a transactional broker: acknowledges inside the handling transaction, before its commit.
    fn acknowledge_within<'a>(
        &'a mut self,
        _session: &'a mut Session<D>,
        _tags: &'a [DeliveryTag],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }

    /// Acknowledges after the commit. All tags were returned by this subscription.
    ///
    /// # Errors
    /// When the channel is dead: the broker delivers again, the inbox refuses the copies.
    fn acknowledge<'a>(
        &'a mut self,
        tags: &'a [DeliveryTag],
    ) -> BoxFuture<'a, Result<(), BrokerError>>;

    /// Whether the queue is empty by the broker's own count, this is its only subscription, and all
    /// that was delivered to it was received and acknowledged. What is published afterwards is not
    /// known of; nor is it asked on a broker without queues, which says `false`.
    ///
    /// # Cancel safety
    /// Safe.
    ///
    /// # Errors
    /// As [`Subscription::receive`].
    fn is_drained(&mut self) -> BoxFuture<'_, Result<bool, BrokerError>> {
        Box::pin(async { Ok(false) })
    }

    /// Ends the subscription; what is not acknowledged goes back to the queue, at its old place.
    /// Never cancels the consumer first: the next subscriber of an ordered queue must not start
    /// while this one still has a backlog.
    fn close(self: Box<Self>) -> BoxFuture<'static, ()>;
}
