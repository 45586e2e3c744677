use super::child::Process;
use super::judged::{assert_in_order, assert_queues, expected, until_rest};
use super::service::{MOVED, Version, beta, enqueue, gamma, keys};
use crate::world::effects::rows;
use crate::world::service::builder;
use crate::world::{BrokerKind, World};

/// What comes to a former queue after the change: a copy of what came to the new ones as well, and
/// a message that came nowhere else.
#[actix_rt::test]
async fn what_comes_late_to_a_former_queue_is_handled_once() {
    let world = World::<posta::Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let former = Process::start(&world, 4, Version::One, None).await;
    let producer = builder(&world).start().await.expect("a producer");
    let keys = keys(6);
    enqueue(&producer, &keys, 0, beta).await;
    former.stop().await;
    // The new layout is in use, and the former queues are there.
    Process::start(&world, 2, Version::One, Some("layout.switched"))
        .await
        .died()
        .await;
    let late = format!("{MOVED}.1.0");
    world.vhost().bind(&late, "test.beta.*");
    world.vhost().bind(&late, "test.gamma.*");
    enqueue(&producer, &keys, 1, beta).await;
    // Nobody else takes these.
    let alone: Vec<String> = (0..3).map(|key| format!("alone {key}")).collect();
    enqueue(&producer, &alone, 0, gamma).await;
    let all = (keys.len() + alone.len()) as u64;
    let vhost = world.vhost();
    vhost
        .queue_until(&late, |queue| queue["messages"] == all)
        .await;

    let heir = Process::start(&world, 2, Version::Two, None).await;
    let number = until_rest::<posta::Postgres>(&store, 2).await;
    let mut all = expected(&keys, 2);
    all.extend(expected(&alone, 1));
    assert_in_order::<posta::Postgres>(&store, &all).await;
    assert_eq!(rows::<posta::Postgres>(&store, "retry", "1 = 1").await, 0);
    assert_queues(&world, number, 2).await;
    producer.stop().await.expect("a drain");
    heir.stop().await;
}
