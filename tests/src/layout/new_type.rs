use std::time::Duration;

use super::child::Process;
use super::judged::{assert_all_in_order, assert_queues, until_rest};
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
    let mut count = 1;
    // As long as nobody takes gamma it stays, with all that follows it.
    for _ in 0..3 {
        enqueue(&producer, &keys, count, gamma).await;
        enqueue(&producer, &keys, count + 1, beta).await;
        count += 2;
    }
    // It dies with the next queues bound, before those in use are unbound.
    Process::start(&world, 2, Version::Two, Some("layout.bound"))
        .await
        .died()
        .await;
    // Time for what can be routed by now: nothing, or, on broken code, all.
    let empty = until("all is routed", async || {
        rows::<posta::Postgres>(&store, "outbox", "1 = 1").await == 0
    });
    let _ = tokio::time::timeout(Duration::from_millis(1500), empty).await;
    let heir = Process::start(&world, 2, Version::Two, None).await;
    let number = until_rest::<posta::Postgres>(&store, 2).await;
    assert_all_in_order::<posta::Postgres>(&store, &keys, count).await;
    assert_queues(&world, number, 2).await;
    producer.stop().await.expect("a drain");
    heir.stop().await;
}
