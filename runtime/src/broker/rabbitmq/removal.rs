use std::sync::Arc;

use lapin::options::{ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::types::ShortString;

use super::channel::Channel;
use super::classify::Purpose;
use super::topology::Plans;
use super::{Provision, Shared, queue_state, topology};
use crate::broker::{BrokerError, BrokerErrorKind, QueueState, Topology};

/// Unbinds all queues of a layout from all types, in one step: it deletes the layout's exchange.
///
/// Type by type, a message of a key could come to the next layout alone, while the key's next one, of
/// a type that is still bound, comes to this one as well and is handled first.
pub(super) async fn unbind(shared: &Arc<Shared>, topology: &Topology) -> Result<(), BrokerError> {
    if shared.options.provision != Provision::Declare {
        return Ok(());
    }
    let Plans { exchange, .. } = topology::plan(&shared.options, topology)?;
    let channel = Channel::open(shared.consuming().await?).await?;
    delete_exchange(&channel, exchange).await?;
    tracing::info!(
        consumer = %topology.consumer,
        layout = topology.generation.number,
        "the queues of a layout are unbound"
    );
    Ok(())
}

/// One that is not there is no error to the broker.
async fn delete_exchange(channel: &Channel, exchange: ShortString) -> Result<(), BrokerError> {
    let operation = format!("delete the exchange {:?}", exchange.as_str());
    let deleting = channel
        .lapin()
        .exchange_delete(exchange, ExchangeDeleteOptions::default());
    channel.ask(operation, Purpose::Provide, deleting).await
}

/// Counts each queue of a layout.
pub(super) async fn depths(
    shared: &Arc<Shared>,
    topology: &Topology,
) -> Result<Vec<Option<QueueState>>, BrokerError> {
    let connection = shared.consuming().await?;
    let mut channel = Channel::open(connection.clone()).await?;
    let mut depths = Vec::new();
    for queue in topology.queues() {
        match queue_state::ask(&channel, &topology::queue_name(&queue)).await {
            Ok(state) => depths.push(Some(state)),
            Err(error) if error.kind() == BrokerErrorKind::Topology => {
                depths.push(None);
                channel = Channel::open(connection.clone()).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(depths)
}

/// Deletes the queues of a layout, and its exchange, should it be there again. (A quorum queue cannot be told to go only if it is empty.)
pub(super) async fn remove(shared: &Arc<Shared>, topology: &Topology) -> Result<(), BrokerError> {
    if shared.options.provision != Provision::Declare {
        return Ok(());
    }
    let Plans {
        exchange,
        partitions,
        ..
    } = topology::plan(&shared.options, topology)?;
    let channel = Channel::open(shared.consuming().await?).await?;
    delete_exchange(&channel, exchange).await?;
    for plan in &partitions {
        // One that is not there is no error to the broker.
        let deleting = channel
            .lapin()
            .queue_delete(plan.name.clone(), QueueDeleteOptions::default());
        let operation = format!("delete the queue {:?}", plan.name.as_str());
        channel.ask(operation, Purpose::Provide, deleting).await?;
    }
    tracing::info!(
        consumer = %topology.consumer,
        layout = topology.generation.number,
        queues = partitions.len(),
        "the queues of a former layout are deleted"
    );
    Ok(())
}
