use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, ExchangeDeleteOptions, QueueDeleteOptions};
use lapin::types::{FieldTable, ShortString};

use super::channel::Channel;
use super::classify::Purpose;
use super::topology::Plans;
use super::{Provision, Shared, queue_depth, topology};
use crate::broker::{BrokerError, BrokerErrorKind, QueueDepth, Topology};

/// How often a layout's exchange is made its own barrier again, since a process that was stopped
/// while it bound the layout made it just then.
const BARRIER_TRIES: u32 = 4;

/// Unbinds all queues of a layout from all types, each slot in one step: for a key, there is one
/// binding, between the layout's exchange and a queue.
///
/// Type by type, a message of a key could come to the next layout alone, while the key's next one, of
/// a type that is still bound, comes to this one as well and is handled first. To delete the exchange
/// with all of its bindings is one step for the broker's tables, and not for who routes by them
/// meanwhile.
///
/// In its place comes an exchange of another kind, which routes nothing and goes with the queues: a
/// process that was stopped before it declared the layout's, and wakes now, is refused.
pub(super) async fn unbind(shared: &Arc<Shared>, topology: &Topology) -> Result<(), BrokerError> {
    if shared.options.provision != Provision::Declare {
        return Ok(());
    }
    let plans = topology::plan(&shared.options, topology)?;
    let connection = shared.consuming().await?;
    let mut refusal = None;
    for _ in 0..BARRIER_TRIES {
        let channel = Channel::open(connection.clone()).await?;
        match barrier(&channel, &plans).await {
            Ok(()) => {
                tracing::info!(
                    consumer = %topology.consumer,
                    layout = topology.generation.number,
                    "the queues of a layout are unbound"
                );
                return Ok(());
            }
            // It is there, of its own kind. The refusal has closed the channel.
            Err(error) if error.kind() == BrokerErrorKind::Topology => refusal = Some(error),
            Err(error) => return Err(error),
        }
        let channel = Channel::open(connection.clone()).await?;
        unbind_slots(&channel, &plans).await?;
        delete_exchange(&channel, plans.exchange.clone()).await?;
    }
    match refusal {
        Some(refusal) => Err(refusal),
        None => Ok(()),
    }
}

/// Has the broker refuse the layout's exchange; refused itself as long as that is there.
async fn barrier(channel: &Channel, plans: &Plans) -> Result<(), BrokerError> {
    let durable = ExchangeDeclareOptions {
        durable: true,
        ..Default::default()
    };
    let (name, none) = (plans.exchange.clone(), FieldTable::default());
    let operation = format!("close the exchange {:?}", name.as_str());
    let declaring = channel
        .lapin()
        .exchange_declare(name, ExchangeKind::Direct, durable, none);
    channel.ask(operation, Purpose::Provide, declaring).await
}

/// A binding that is not there is no error to the broker.
async fn unbind_slots(channel: &Channel, plans: &Plans) -> Result<(), BrokerError> {
    let bindings = plans.partitions.iter().flat_map(|plan| {
        let slots = plan.routing_keys.iter();
        slots.map(|slot| (plan.name.clone(), slot.clone()))
    });
    let mut steps: FuturesOrdered<_> = bindings
        .map(|(queue, slot)| {
            let (exchange, none) = (plans.exchange.clone(), FieldTable::default());
            channel.lapin().queue_unbind(queue, exchange, slot, none)
        })
        .collect();
    let operation = format!("unbind the exchange {:?}", plans.exchange.as_str());
    while let Some(()) = channel
        .ask(operation.as_str(), Purpose::Provide, async {
            steps.next().await.transpose()
        })
        .await?
    {}
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
) -> Result<Vec<Option<QueueDepth>>, BrokerError> {
    let connection = shared.consuming().await?;
    let mut channel = Channel::open(connection.clone()).await?;
    let mut depths = Vec::new();
    for queue in topology.queues() {
        match queue_depth::ask(&channel, &topology::queue_name(&queue)).await {
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

/// Deletes the queues of a layout, and what has the place of its exchange. (A quorum queue cannot be
/// told to go only if it is empty.)
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
