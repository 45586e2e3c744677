//! RabbitMQ as a broker.

mod channel;
mod classify;
mod cloud_events;
mod connection;
mod field;
mod intake;
mod mistakes;
mod options;
mod properties;
mod publisher;
mod rabbitmq;
mod reactor;
mod returns;
mod slot;
mod subscription;
mod tls;
mod topology;
mod url;

pub use options::{Provision, RabbitMqOptions};
pub use publisher::RabbitMqPublisher;
pub use rabbitmq::RabbitMq;
use rabbitmq::Shared;
pub use subscription::RabbitMqSubscription;

/// What the names of the dead-letter exchange and of the dead queues end with.
const DEAD: &str = ".dead";
