//! Brokers: what carries a message from the dispatcher to the consumers' queues.
//!
//! One trait, [`BrokerDriver`], with what each broker can do said as data ([`Capabilities`]) and
//! one conformance suite. Two kinds differ in *when* they take part, relative to the database's
//! commit:
//!
//! | | outside the database (RabbitMQ) | the database itself |
//! |---|---|---|
//! | publish | before the settling transaction: [`Publisher::publish`] | inside it: [`Publisher::publish_within`] |
//! | acknowledge | after the handling transaction: [`Subscription::acknowledge`] | inside it: [`Subscription::acknowledge_within`] |
//!
//! Drivers know no actor; actors know this trait, never lapin's types.

mod broker;
mod capabilities;
pub mod database;
mod driver;
mod error;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
mod topology;

pub use broker::Broker;
pub(crate) use broker::BrokerKind;
pub use capabilities::Capabilities;
pub use driver::{
    BrokerDriver, Delivery, DeliveryTag, MaybeSubscription, PublishOutcome, Publisher, QueueDepth,
    Subscription,
};
pub use error::{BrokerError, BrokerErrorKind};
pub use topology::{PartitionQueue, Topology};
