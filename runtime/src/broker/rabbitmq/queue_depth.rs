use lapin::options::QueueDeclareOptions;
use lapin::types::{FieldTable, ShortString};

use super::channel::Channel;
use super::classify::Purpose;
use super::{Shared, topology};
use crate::broker::{BrokerError, BrokerErrorKind, PartitionQueue, QueueDepth};

/// How a partition's queue is, by the broker's own count: what a process that believes to be
/// consuming can be held against.
pub(super) async fn of(shared: &Shared, queue: &PartitionQueue) -> Result<QueueDepth, BrokerError> {
    let channel = Channel::open(shared.consuming().await?).await?;
    ask(&channel, &topology::queue_name(queue)).await
}

/// Asks over a channel, which a missing queue closes. What the broker had delivered over it before it
/// counted stands on the wire before its answer to the next question.
pub(super) async fn ask(channel: &Channel, queue: &str) -> Result<QueueDepth, BrokerError> {
    let operation = format!("look at the queue {queue:?}");
    let name = ShortString::try_new(queue).map_err(|error| {
        BrokerError::new(operation.as_str(), BrokerErrorKind::Configuration).with_source(error)
    })?;
    let passive = QueueDeclareOptions {
        passive: true,
        ..QueueDeclareOptions::default()
    };
    let looking = channel
        .lapin()
        .queue_declare(name, passive, FieldTable::default());
    let queue = channel.ask(operation, Purpose::Provide, looking).await?;
    Ok(QueueDepth {
        ready: u64::from(queue.message_count()),
        consumers: Some(queue.consumer_count()),
    })
}
