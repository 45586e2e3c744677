use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use lapin::options::QueueDeleteOptions;
use lapin::types::FieldTable;

use super::channel::Channel;
use super::classify::{self, Purpose};
use super::topology::{Plans, routing};
use super::{Provision, Shared, queue_state, topology};
use crate::broker::{BrokerError, BrokerErrorKind, QueueState, Topology};

/// Takes a layout's bindings away, queue by queue.
pub(super) async fn unbind(shared: &Arc<Shared>, topology: &Topology) -> Result<(), BrokerError> {
    if shared.options.provision != Provision::Declare {
        return Ok(());
    }
    let Plans { partitions, .. } = topology::plan(&shared.options, topology)?;
    let connection = shared.consuming().await?;
    let mut channel = Channel::open(connection.clone()).await?;
    for plan in &partitions {
        let mut unbinding: FuturesOrdered<_> = plan
            .routing_keys
            .iter()
            .map(|routing_key| {
                let (queue, exchange) = routing(plan);
                let nothing = FieldTable::default();
                channel
                    .lapin()
                    .queue_unbind(queue, exchange, routing_key.clone(), nothing)
            })
            .collect();
        let operation = format!("unbind the queue {:?}", plan.name.as_str());
        loop {
            let next = unbinding.next();
            match channel
                .ask(operation.as_str(), Purpose::Provide, async {
                    Ok(next.await)
                })
                .await?
            {
                None => break,
                Some(Ok(())) => {}
                // Without the queue there are no bindings; the broker has closed the channel.
                Some(Err(error)) if classify::is_soft(&error) && classify::is_missing(&error) => {
                    drop(unbinding);
                    channel = Channel::open(connection.clone()).await?;
                    break;
                }
                Some(Err(error)) => {
                    return Err(classify::broker_error(operation, Purpose::Provide, &error));
                }
            }
        }
    }
    tracing::info!(
        consumer = %topology.consumer,
        layout = topology.generation.number,
        "the queues of a layout are unbound"
    );
    Ok(())
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

/// Deletes the queues of a layout. (A quorum queue cannot be told to go only if it is empty.)
pub(super) async fn remove(shared: &Arc<Shared>, topology: &Topology) -> Result<(), BrokerError> {
    if shared.options.provision != Provision::Declare {
        return Ok(());
    }
    let Plans { partitions, .. } = topology::plan(&shared.options, topology)?;
    let channel = Channel::open(shared.consuming().await?).await?;
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
