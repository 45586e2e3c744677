use std::time::Duration;

use super::child::Process;
use super::judged::{assert_all_in_order, assert_in_order, assert_queues, expected, until_rest};
use super::service::{Version, beta, enqueue, gamma, keys};
use crate::world::effects::rows;
use crate::world::service::builder;
use crate::world::{BrokerKind, World, until};

/// Beta goes to the queues in use and to those that are to come, gamma is new. Were gamma bound to
/// the latter alone while beta comes to both, a key's beta would be handled before the gamma that it
/// follows.
#[actix_rt::test]
async fn a_type_that_comes_with_a_change_keeps_its_place_among_others_of_its_key() {
    let world = World::<posta::Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let former = Process::start(&world, 4, Version::One, None).await;
    let producer = builder(&world).start().await.expect("a producer");
    let keys = keys(8);
    enqueue(&producer, &keys, 0, beta).await;
    assert_all_in_order::<posta::Postgres>(&store, &keys, 1).await;
    former.stop().await;
    // It dies with the next queues bound, before those in use are unbound.
    Process::start(&world, 2, Version::Two, Some("layout.bound"))
        .await
        .died()
        .await;
    // Keys of their own, which nothing keeps waiting: what can be routed by now is, at once.
    let new: Vec<String> = (0..8).map(|key| format!("new {key}")).collect();
    enqueue(&producer, &new, 0, gamma).await;
    enqueue(&producer, &new, 1, beta).await;
    let routed = until("all is routed", async || {
        rows::<posta::Postgres>(&store, "outbox", "1 = 1").await == 0
    });
    // It is on broken code alone.
    let _ = tokio::time::timeout(Duration::from_millis(1500), routed).await;
    let heir = Process::start(&world, 2, Version::Two, None).await;
    let number = until_rest::<posta::Postgres>(&store, 2).await;
    let mut all = expected(&keys, 1);
    all.extend(expected(&new, 2));
    assert_in_order::<posta::Postgres>(&store, &all).await;
    assert_queues(&world, number, 2).await;
    producer.stop().await.expect("a drain");
    heir.stop().await;
}
