//! Queues that an operator provides: what `runtime/docs/operating.md` tells to do, done.

use lapin::ExchangeKind;
use lapin::options::{
    ExchangeBindOptions, ExchangeDeclareOptions, ExchangeDeleteOptions, QueueBindOptions,
};
use lapin::types::FieldTable;
use posta::broker::rabbitmq::Provision;
use posta::layout::LayoutStep;
use posta::operations::Operator;
use posta::{Broker, Posta};

use super::judged::{assert_all_in_order, assert_queues, layout, until_rest};
use super::service::{MOVED, Version, beta, consumer, enqueue, keys};
use crate::world::service::{builder, quick};
use crate::world::{BrokerKind, TestDatabase, World, until};

#[actix_rt::test]
async fn a_change_waits_for_the_operator_who_has_queues_verified() {
    a_change_waits_for_the_operator::<posta::Postgres>(Provision::Verify).await;
}

#[actix_rt::test]
async fn a_change_waits_for_the_operator_who_has_queues_left_alone() {
    a_change_waits_for_the_operator::<posta::Sqlite>(Provision::LeaveAlone).await;
}

async fn a_change_waits_for_the_operator<D: TestDatabase>(provision: Provision) {
    let world = World::<D>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let keys = keys(12);
    let producer = builder(&world).start().await.expect("a producer");
    // Here Posta is the operator who makes the first queues.
    let maker = builder(&world).consumer(consumer::<D>(4, Version::One));
    let maker = maker.start().await.expect("a service");
    maker.declared().await;
    enqueue(&producer, &keys, 0, beta).await;
    assert_all_in_order::<D>(&store, &keys, 1).await;
    maker.stop().await.expect("a drain");

    let mut service = provided(&world, provision).await;
    until("the change waits", async || {
        let layout = layout::<D>(&store).await;
        layout.is_some_and(|layout| layout.step == LayoutStep::Binding { next: 2 })
    })
    .await;
    enqueue(&producer, &keys, 1, beta).await;
    assert_all_in_order::<D>(&store, &keys, 2).await;
    // Who is started meanwhile works with the queues in use.
    service.stop().await.expect("a drain");
    service = provided(&world, provision).await;
    enqueue(&producer, &keys, 2, beta).await;
    assert_all_in_order::<D>(&store, &keys, 3).await;

    let operator = Operator::<D>::new(store.clone(), "ada").expect("a name");
    move_bindings(&world).await;
    enqueue(&producer, &keys, 3, beta).await;
    // While its processes are at the layout, the operator is told to try again.
    until("the operator has said so", async || {
        let said = operator.layout_bound(MOVED, "they are moved").await;
        said.is_ok()
    })
    .await;
    let again = operator.layout_bound(MOVED, "they are moved").await;
    assert!(again.is_err(), "it is said once");
    enqueue(&producer, &keys, 4, beta).await;
    let number = until_rest::<D>(&store, 2).await;
    assert_eq!(number, 2);
    assert_all_in_order::<D>(&store, &keys, 5).await;
    for partition in 0..4 {
        let former = format!("{MOVED}.1.{partition}");
        // The management API counts a little later than the broker.
        let empty = |queue: &serde_json::Value| queue["messages"] == 0;
        world.vhost().queue_until(&former, empty).await;
        world.vhost().delete_queue(&former);
    }
    assert_queues(&world, number, 2).await;
    producer.stop().await.expect("a drain");
    service.stop().await.expect("a drain");
}

/// A service with 2 partitions, which leaves the queues to an operator.
async fn provided<D: TestDatabase>(world: &World<D>, provision: Provision) -> Posta<D> {
    let options = world.vhost().options().provision(provision);
    let broker = Broker::rabbitmq(options);
    let service = Posta::<D>::builder(&world.database_url, broker).tables(world.tables.clone());
    let service = quick(service).consumer(consumer::<D>(2, Version::One));
    service.start().await.expect("a service")
}

/// The operator's steps 1 to 3.
async fn move_bindings<D: TestDatabase>(world: &World<D>) {
    let vhost = world.vhost();
    let connection = lapin::Connection::connect(&vhost.url(), Default::default()).await;
    let connection = connection.expect("a connection");
    let channel = connection.create_channel().await.expect("a channel");
    let arguments = vhost.queue(&format!("{MOVED}.1.0"))["arguments"].clone();
    let (former, next) = (format!("{MOVED}.1"), format!("{MOVED}.2"));
    let durable = ExchangeDeclareOptions {
        durable: true,
        ..Default::default()
    };
    let none = FieldTable::default;
    channel
        .exchange_declare(next.as_str().into(), ExchangeKind::Topic, durable, none())
        .await
        .expect("an exchange");
    for partition in 0..2 {
        let queue = format!("{next}.{partition}");
        vhost.make_queue(&queue, &arguments);
        for slot in partition * 32..(partition + 1) * 32 {
            let (queue, exchange) = (queue.as_str().into(), next.as_str().into());
            let (slot, options) = (format!("#.{slot}"), QueueBindOptions::default());
            let bound = channel.queue_bind(queue, exchange, slot.into(), options, none());
            bound.await.expect("a binding");
        }
    }
    for message_type in ["test.alpha.*", "test.beta.*"] {
        let (to, options) = (next.as_str().into(), ExchangeBindOptions::default());
        channel
            .exchange_bind(to, "posta".into(), message_type.into(), options, none())
            .await
            .expect("a binding");
    }
    channel
        .exchange_delete(former.into(), ExchangeDeleteOptions::default())
        .await
        .expect("a deletion");
}
