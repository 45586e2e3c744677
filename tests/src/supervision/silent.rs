//! A subscription that is there, and silent.

use futures_util::StreamExt as _;
use lapin::options::{BasicConsumeOptions, BasicQosOptions};
use lapin::types::FieldTable;
use lapin::{Connection, ConnectionProperties};
use posta::Sqlite;

use crate::world::service::until_quiet;
use crate::world::service::{Calls, EFFECTS, Fate, builder, effects_consumer, enqueue};
use crate::world::{BrokerKind, World, until};

/// Somebody else is the single active consumer of a partition's queue, and does nothing.
#[actix_rt::test]
async fn a_subscription_to_which_nothing_comes_is_noticed_and_made_anew() {
    let world = World::<Sqlite>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let service = async || {
        let consumer = effects_consumer::<Sqlite>(&Calls::default()).partitions(1);
        let service = builder(&world).consumer(consumer).start();
        service.await.expect("a running service")
    };
    let first = service().await;
    first.declared().await;
    first.stop().await.expect("a drain");
    let stranger = Connection::connect(&world.vhost().url(), ConnectionProperties::default())
        .await
        .expect("a connection");
    let channel = stranger.create_channel().await.expect("a channel");
    let one = BasicQosOptions::default();
    channel.basic_qos(1, one).await.expect("a prefetch of one");
    let mut deliveries = channel
        .basic_consume(
            format!("{EFFECTS}.1.0").into(),
            "stranger".into(),
            BasicConsumeOptions::default(),
            FieldTable::default(),
        )
        .await
        .expect("a subscription");

    let posta = service().await;
    enqueue(&posta, 3, 0..1, |_, _| Fate::Succeed).await;
    let held = deliveries.next().await.expect("one").expect("a delivery");
    until("it is noticed", async || {
        let child = posta.registry().child("effects 0").expect("its actor");
        child.restarts >= 1
    })
    .await;
    let child = posta.registry().child("effects 0").expect("its actor");
    let (error, _) = child.last_error.expect("why");
    assert!(
        error.contains("messages are ready, and none comes"),
        "{error}"
    );
    drop(held);
    stranger.close(200, "bye".into()).await.expect("its end");
    until_quiet::<Sqlite>(&store, EFFECTS, 3).await;
    until("all is well", async || posta.health().reasons.is_empty()).await;
    posta.stop().await.expect("a drain");
}
