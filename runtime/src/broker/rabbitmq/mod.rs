//! RabbitMQ as a broker: 3.10 and newer, single or clustered, any managed one; no plugin. Its
//! client is lapin.
//!
//! # The protocol
//!
//! **What there is on the broker.** One durable topic exchange (`posta`) that everything is
//! published to, with the routing key `<message type>.<slot>`. A consumer with P partitions has the
//! quorum queues `<consumer>.<layout>.0` to `<consumer>.<layout>.<P-1>`, each bound once per slot of
//! its range ([`PartitionQueue::slots`]), by `#.<slot>`, to the layout's topic exchange
//! `<consumer>.<layout>`, which is bound to `posta` once per type, by `<message type>.*`. The layout is
//! a number from 1, one more after each change of P. What a queue gives up on goes through the direct
//! exchange `posta.dead` to the quorum queue `<consumer>.dead` and stays there.
//!
//! | argument of a partition's queue | value | why |
//! |---|---|---|
//! | `x-queue-type` | `quorum` | survives the loss of a node |
//! | `x-single-active-consumer` | true | one process at a time has deliveries of an ordered queue, beside the lease |
//! | `x-delivery-limit` | 20, configurable | a message that keeps killing its process ends somewhere |
//! | `x-dead-letter-exchange`, `-routing-key` | `posta.dead`, `<consumer>` | and is kept there |
//! | `x-dead-letter-strategy`, `x-overflow` | `at-least-once`, `reject-publish` | not lost on its way there; without a length limit the second does nothing |
//!
//! **Provide.** Declarations and bindings are sent all at once and answered in order, over one
//! channel. The broker closes a channel over a queue that exists with other arguments; the others
//! then go on over another channel, and the error names the queue, the argument and both values, in
//! the broker's words. Nothing of the layout in use is ever deleted or unbound: AMQP cannot list
//! bindings, so a type that a consumer no longer takes stays bound until somebody unbinds it, and its
//! messages are messages without a handler.
//!
//! **Publish.** One channel per publisher, in confirm mode; persistent and `mandatory`. A wave goes
//! out pipelined under one deadline. *Confirmed* is a message with a positive confirm whose id is
//! not among the wave's returns. Returns are matched by message id and only when all confirms are
//! in, since with several in flight lapin can hang a return on another message's confirm. What
//! would cost the channel, and the neighbours with it, is refused beforehand, alone: too large,
//! headers over one frame, headers that RabbitMQ acts on. A limit of the broker's that is lower
//! than configured costs one wave, and is known from then on. Anything else that fails, fails the
//! call: no message's attempt, nothing known, and the publisher is dropped. (When the broker closes
//! a channel with much in flight, lapin now and then sends some of it behind its answer; the broker
//! then closes the connection, and other publishers' waves fail with it.)
//!
//! **Consume.** One channel per partition: closing it concerns no other. Prefetch is always
//! bounded. Acknowledgements are sent as `multiple` only up to a tag below which nothing else is
//! outstanding. A closed channel, a cancelled consumer, an ended stream and a lost connection are
//! errors, and final. A subscription ends by closing its channel, never by cancelling: with a
//! cancelled consumer the next one starts behind a backlog that is still being worked off. Closing
//! gives everything back at its old place in one step.
//!
//! **Order and prefetch.** A quorum queue hands out first what was given back, in the order in
//! which it was given back. If a subscription could hold only a part of that and gave it back in
//! turn, it would come *behind* the rest. So all subscriptions of a queue have the same prefetch,
//! from their first delivery on; lower the setting only while the consumers stand still and their
//! queues are empty.
//!
//! **Changing P.** The queues of the next layout are made and bound, then those in use are unbound,
//! emptied, and deleted ([`crate::layout`]). In between a message comes to both, and the inbox
//! refuses one; bound the other way round it would come to none. Unbinding goes slot by slot, between
//! the layout's exchange and its queues, which is one step for a key: were one type unbound before
//! another, a key's message of the one would come to the next layout alone, and its next message, of
//! the other, also to the one in use, where it is handled first. *Empty* is asked over the
//! subscription's own channel, twice: what was delivered before the first count stands on the wire
//! before the second answer. A queue is never deleted that holds a message or has a subscriber;
//! quorum queues cannot be asked to look to that themselves. Whether a message can still be on its
//! way inside a cluster, between an exchange and a queue that was bound when it was routed, AMQP
//! cannot say: the settling pauses are there for it.
//!
//! **Connections.** One for publishing and one for consuming, since an alarm blocks those that
//! publish. Each is made when it is asked for, and again by whoever asks after it was lost; lapin's
//! own recovery is off. Nobody here tries twice: the actors above do, with their backoff. A silent
//! network is noticed after 2 to 2.5 heartbeats, by lapin, in both directions. A blocked connection
//! fails the wave in flight and every later one until it is unblocked; what was on its way then may
//! arrive in addition, and the inbox refuses the copies.
//!
//! **Threads.** All tasks of a driver's connections live on a thread of its own, so that neither
//! the end of an arbiter nor a handler that keeps its thread busy costs a heartbeat. Lapin adds one
//! thread per connection for the bytes. A second handle on each socket lets the driver shut it down
//! when lapin would wait for ever: while connecting, and while closing towards a network that is
//! silent.
//!
//! # A message in AMQP's terms
//!
//! | envelope | property or header |
//! |---|---|
//! | id, type, content type | `message_id`, `type`, `content_type` |
//! | enqueued at | `timestamp`, in seconds |
//! | header `correlation-id` | `correlation_id`; the header of the same name if it has more than 255 bytes |
//! | version | header `posta-version`, a long int; absent means 1 |
//! | ordering key | header `posta-key`, a long string; absent without key |
//! | other headers | headers, as long strings |
//! | payload | the body, byte for byte |
//!
//! A foreign publisher must set `message_id` (a UUID) and `type`, and choose as slot the first byte
//! of the key's SHA-256 modulo 64; a message with another slot than its key's is handled all the
//! same, in the order of the queue that it came to. CloudEvents 1.0 in binary mode is understood:
//! id, type, time and partition key are taken from the `cloudEvents_` (or `cloudEvents:`) headers
//! if the properties do not say them. Headers of other AMQP types become text. Whatever is missing
//! or wrong, the message arrives as [`Malformed`](crate::message::Malformed) with its bytes intact.
//!
//! # What lapin logs
//!
//! Lapin reports a returned message at the level WARN under the target `lapin::returned_messages`,
//! its payload included. Services whose payloads are confidential set that target to `error`.
//!
//! [`PartitionQueue::slots`]: crate::broker::PartitionQueue::slots

mod channel;
mod classify;
mod cloud_events;
mod connection;
mod driver;
mod field;
mod intake;
mod mistakes;
mod offer;
mod options;
mod properties;
mod publisher;
mod queue_depth;
mod reactor;
mod removal;
mod returns;
mod slot;
mod subscription;
mod tls;
mod topology;
mod url;

pub use crate::broker::QueueDepth;
pub use driver::RabbitMq;
use driver::Shared;
pub use options::{Provision, RabbitMqOptions};
pub use publisher::RabbitMqPublisher;
pub use subscription::RabbitMqSubscription;

/// What the names of the dead-letter exchange and of the dead queues end with.
const DEAD: &str = ".dead";
