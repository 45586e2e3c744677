use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use lapin::ExchangeKind;
use lapin::options::{
    ExchangeBindOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions,
};
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};

use super::channel::Channel;
use super::classify::{self, Purpose};
use super::{DEAD, Provision, RabbitMqOptions, Shared};
use crate::broker::{BrokerError, BrokerErrorKind, PartitionQueue, Topology};

/// The exchange of a layout: from the one that everything is published to, it gets the types that the
/// consumer takes, and gives each slot to its partition's queue: a key has one binding there, whatever
/// the types of its messages.
pub(super) fn layout_exchange_name(topology: &Topology) -> String {
    format!("{}.{}", topology.consumer, topology.generation.number)
}

/// The queue of a partition.
pub(super) fn queue_name(queue: &PartitionQueue) -> String {
    queue.name()
}

/// The queue of what the broker gave up on.
pub(super) fn dead_queue_name(consumer: &str) -> String {
    format!("{consumer}{DEAD}")
}

/// The exchange that quorum queues hand over to what they give up on.
pub(super) fn dead_exchange_name(options: &RabbitMqOptions) -> String {
    format!("{}{DEAD}", options.exchange)
}

/// A queue as it should be, with its bindings.
#[derive(Clone, Debug)]
pub(super) struct QueuePlan {
    pub(super) name: ShortString,
    arguments: FieldTable,
    exchange: ShortString,
    pub(super) routing_keys: Vec<ShortString>,
}

/// All that a consumer has in a layout.
pub(super) struct Plans {
    dead: QueuePlan,
    pub(super) exchange: ShortString,
    pub(super) partitions: Vec<QueuePlan>,
    /// What the layout's exchange gets. Without any, the layout is only emptied, and there need be
    /// nothing but its queues.
    routing_keys: Vec<ShortString>,
}

/// Declares or verifies a consumer's topology.
pub(super) async fn provide(shared: &Arc<Shared>, topology: &Topology) -> Result<(), BrokerError> {
    let options = &shared.options;
    let Plans {
        dead,
        exchange: layout_exchange,
        mut partitions,
        routing_keys,
    } = plan(options, topology)?;
    let emptied = routing_keys.is_empty();
    if emptied {
        partitions
            .iter_mut()
            .for_each(|plan| plan.routing_keys.clear());
    }
    let plans = [vec![dead], partitions].concat();
    if options.provision == Provision::LeaveAlone {
        return Ok(());
    }
    let connection = shared.consuming().await?;
    let channel = Channel::open(connection.clone()).await?;
    exchange(&channel, options, &options.exchange, ExchangeKind::Topic).await?;
    exchange(
        &channel,
        options,
        &dead_exchange_name(options),
        ExchangeKind::Direct,
    )
    .await?;
    if !emptied && options.provision == Provision::Declare {
        exchange(
            &channel,
            options,
            layout_exchange.as_str(),
            ExchangeKind::Topic,
        )
        .await?;
    }

    // The broker closes the channel over a queue that differs and ignores what was sent after it;
    // the other queues get another channel.
    let (mut channel, mut next, mut refusals) = (channel, 0, Vec::new());
    while next < plans.len() {
        let (done, refusal) = queues(&channel, options.provision, &plans[next..]).await?;
        next += done;
        if let Some(refusal) = refusal {
            tracing::warn!(queue = plans[next].name.as_str(), %refusal, "a queue differs from the configuration");
            refusals.push((plans[next].name.to_string(), refusal));
            next += 1;
            channel = Channel::open(connection.clone()).await?;
        }
    }
    // At last: what is routed to the layout's exchange finds its queues.
    if options.provision == Provision::Declare {
        types(&channel, options, &layout_exchange, routing_keys).await?;
    }
    conclude(topology, plans.len(), refusals)
}

/// Binds a layout's exchange to the types that its consumer takes.
async fn types(
    channel: &Channel,
    options: &RabbitMqOptions,
    layout_exchange: &ShortString,
    routing_keys: Vec<ShortString>,
) -> Result<(), BrokerError> {
    let mut bindings: FuturesOrdered<_> = routing_keys
        .into_iter()
        .map(|routing_key| {
            channel.lapin().exchange_bind(
                layout_exchange.clone(),
                options.exchange.as_str().into(),
                routing_key,
                ExchangeBindOptions::default(),
                FieldTable::default(),
            )
        })
        .collect();
    let operation = format!("bind the exchange {:?}", layout_exchange.as_str());
    while let Some(()) = channel
        .ask(operation.as_str(), Purpose::Provide, async {
            bindings.next().await.transpose()
        })
        .await?
    {}
    Ok(())
}

/// Sees to the exchange of a publisher.
pub(super) async fn provide_exchange(
    channel: &Channel,
    options: &RabbitMqOptions,
) -> Result<(), BrokerError> {
    exchange(channel, options, &options.exchange, ExchangeKind::Topic).await
}

fn conclude(
    topology: &Topology,
    queues: usize,
    refusals: Vec<(String, lapin::Error)>,
) -> Result<(), BrokerError> {
    let Some((first, error)) = refusals.first() else {
        tracing::info!(
            consumer = %topology.consumer,
            layout = topology.generation.number,
            queues,
            types = topology.types.len(),
            "exchanges, queues and bindings are there"
        );
        return Ok(());
    };
    if let [(queue, error)] = refusals.as_slice() {
        return Err(classify::broker_error(
            format!("provide the queue {queue:?}"),
            Purpose::Provide,
            error,
        ));
    }
    let operation = format!(
        "provide the queue {first:?} and {} others",
        refusals.len() - 1
    );
    let kind = classify::broker_error("", Purpose::Provide, error).kind();
    let texts: Vec<String> = refusals
        .iter()
        .map(|(_, error)| classify::text(error))
        .collect();
    Err(BrokerError::new(operation, kind).with_source(texts.join("; ")))
}

async fn exchange(
    channel: &Channel,
    options: &RabbitMqOptions,
    name: &str,
    kind: ExchangeKind,
) -> Result<(), BrokerError> {
    let passive = match options.provision {
        Provision::LeaveAlone => return Ok(()),
        Provision::Verify => true,
        Provision::Declare => false,
    };
    let declare = ExchangeDeclareOptions {
        passive,
        durable: true,
        ..Default::default()
    };
    let declaring =
        channel
            .lapin()
            .exchange_declare(name.into(), kind, declare, FieldTable::default());
    channel
        .ask(
            format!("provide the exchange {name:?}"),
            Purpose::Provide,
            declaring,
        )
        .await
}

/// Provides queues over one channel, all in flight at once. Returns how many are through, and why
/// the next one is not if the broker refused it.
async fn queues(
    channel: &Channel,
    provision: Provision,
    plans: &[QueuePlan],
) -> Result<(usize, Option<lapin::Error>), BrokerError> {
    let mut steps: FuturesOrdered<BoxFuture<'_, (usize, lapin::Result<()>)>> =
        FuturesOrdered::new();
    for (index, plan) in plans.iter().enumerate() {
        let declare = QueueDeclareOptions {
            passive: provision == Provision::Verify,
            durable: true,
            ..QueueDeclareOptions::default()
        };
        let declaring =
            channel
                .lapin()
                .queue_declare(plan.name.clone(), declare, plan.arguments.clone());
        steps.push_back(
            declaring
                .map(move |declared| (index, declared.map(|_| ())))
                .boxed(),
        );
        if provision == Provision::Verify {
            continue;
        }
        for routing_key in &plan.routing_keys {
            let binding = channel.lapin().queue_bind(
                plan.name.clone(),
                plan.exchange.clone(),
                routing_key.clone(),
                QueueBindOptions::default(),
                FieldTable::default(),
            );
            steps.push_back(binding.map(move |bound| (index, bound)).boxed());
        }
    }
    loop {
        // Each answer has the whole time again: it is the broker's silence that is bounded, not the
        // number of queues.
        let step = channel
            .ask("provide the queues", Purpose::Provide, steps.next().map(Ok))
            .await?;
        match step {
            None => return Ok((plans.len(), None)),
            Some((_, Ok(()))) => {}
            Some((index, Err(error))) if classify::is_soft(&error) => {
                return Ok((index, Some(error)));
            }
            Some((index, Err(error))) => {
                let operation = format!("provide the queue {:?}", plans[index].name.as_str());
                return Err(classify::broker_error(operation, Purpose::Provide, &error));
            }
        }
    }
}

/// What a consumer's queues are to be.
pub(super) fn plan(options: &RabbitMqOptions, topology: &Topology) -> Result<Plans, BrokerError> {
    named(options, topology).map_err(|reason| {
        BrokerError::new(
            format!("name the queues of the consumer {:?}", topology.consumer),
            BrokerErrorKind::Configuration,
        )
        .with_source(reason)
    })
}

fn named(options: &RabbitMqOptions, topology: &Topology) -> Result<Plans, String> {
    let short = |text: String| {
        ShortString::try_new(text.as_str()).map_err(|error| format!("{text:?}: {error}"))
    };
    let consumer = topology.consumer.as_str();
    let exchange = short(layout_exchange_name(topology))?;
    let dead = QueuePlan {
        name: short(dead_queue_name(consumer))?,
        arguments: quorum(),
        exchange: short(dead_exchange_name(options))?,
        routing_keys: vec![short(consumer.to_owned())?],
    };
    let mut partitions = Vec::new();
    for queue in topology.queues() {
        let routing_keys = queue.slots().map(|slot| short(format!("#.{slot}")));
        let routing_keys = routing_keys.collect::<Result<_, _>>()?;
        partitions.push(QueuePlan {
            name: short(queue_name(&queue))?,
            arguments: partition_arguments(options, consumer),
            exchange: exchange.clone(),
            routing_keys,
        });
    }
    let types = topology.types.iter().map(|name| short(format!("{name}.*")));
    Ok(Plans {
        dead,
        exchange,
        partitions,
        routing_keys: types.collect::<Result<_, _>>()?,
    })
}

fn quorum() -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), text("quorum"));
    arguments
}

fn partition_arguments(options: &RabbitMqOptions, consumer: &str) -> FieldTable {
    let mut arguments = quorum();
    arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
    arguments.insert(
        "x-delivery-limit".into(),
        AMQPValue::LongLongInt(options.delivery_limit.into()),
    );
    arguments.insert(
        "x-dead-letter-exchange".into(),
        text(&dead_exchange_name(options)),
    );
    arguments.insert("x-dead-letter-routing-key".into(), text(consumer));
    // The queue keeps a message that it gives up on until the dead queue has confirmed it; the
    // strategy asks for this overflow behaviour, which does nothing in a queue without a length
    // limit.
    arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
    arguments.insert("x-overflow".into(), text("reject-publish"));
    arguments
}

fn text(text: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MessageType;
    use crate::store::Generation;

    #[test]
    fn every_slot_is_bound_to_exactly_one_queue_and_every_type_to_the_layouts_exchange() {
        let options = RabbitMqOptions::from_url("amqp://localhost").unwrap();
        let types = ["a.b", "c"]
            .map(|name| MessageType::new(name).unwrap())
            .to_vec();
        for partitions in [1, 3, 64] {
            let topology = Topology {
                consumer: "n".to_owned(),
                generation: Generation::first(partitions),
                types: types.clone(),
            };
            let plans = named(&options, &topology).unwrap();
            assert_eq!(plans.partitions.len(), usize::from(partitions));
            assert_eq!(plans.exchange.as_str(), "n.1");
            assert_eq!(plans.routing_keys, ["a.b.*", "c.*"].map(ShortString::from));
            let keys = plans.partitions.iter().flat_map(|plan| &plan.routing_keys);
            let mut keys: Vec<&str> = keys.map(ShortString::as_str).collect();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), 64);
            assert!(keys.contains(&"#.0") && keys.contains(&"#.63"));
        }
    }

    #[test]
    fn a_consumer_whose_queues_have_no_name_in_amqp_is_refused() {
        let options = RabbitMqOptions::from_url("amqp://localhost").unwrap();
        let consumer = "c".repeat(252);
        let topology = Topology {
            consumer,
            generation: Generation::first(1),
            types: Vec::new(),
        };
        let refused = named(&options, &topology).err().unwrap();
        assert!(refused.contains("255"));
    }
}
