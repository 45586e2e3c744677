use lapin::options::QueueDeclareOptions;
use lapin::types::{FieldTable, ShortString};

use super::channel::Channel;
use super::classify::Purpose;
use super::{Shared, topology};
use crate::broker::{BrokerError, BrokerErrorKind, PartitionQueue};

/// How a queue is, by the broker's own count: what a process that believes to be consuming can be
/// held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueState {
    /// Messages that wait to be delivered; those that are delivered and unacknowledged are not
    /// counted.
    pub ready: u32,
    /// Subscriptions, the active one and those in line.
    pub consumers: u32,
}

impl QueueState {
    pub(super) async fn ask(shared: &Shared, queue: &PartitionQueue) -> Result<Self, BrokerError> {
        let name = topology::queue_name(queue);
        let operation = format!("look at the queue {name:?}");
        let name = ShortString::try_new(name).map_err(|error| {
            BrokerError::new(operation.as_str(), BrokerErrorKind::Configuration).with_source(error)
        })?;
        let channel = Channel::open(shared.consuming().await?).await?;
        let passive = QueueDeclareOptions {
            passive: true,
            ..QueueDeclareOptions::default()
        };
        let looking = channel
            .lapin()
            .queue_declare(name, passive, FieldTable::default());
        let queue = channel.ask(operation, Purpose::Provide, looking).await?;
        Ok(Self {
            ready: queue.message_count(),
            consumers: queue.consumer_count(),
        })
    }
}
