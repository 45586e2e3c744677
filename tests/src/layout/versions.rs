use std::time::Duration;

use super::child::Process;
use super::judged::{assert_in_order, assert_queues, expected, until_rest};
use super::service::{MOVED, Version, alpha, beta, enqueue, gamma, keys};
use crate::world::effects::{effects_of, rows};
use crate::world::service::builder;
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(two_versions_share_a_consumer_while_one_replaces_the_other);

/// Version one knows alpha and beta, version two beta and gamma, and has another number of
/// partitions. What comes to a process that does not know it waits, and its key behind it, until one
/// comes that does.
async fn two_versions_share_a_consumer_while_one_replaces_the_other<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let mut old = Vec::new();
    for _ in 0..2 {
        old.push(Process::start(&world, 4, Version::One, None).await);
    }
    let producer = builder(&world).start().await.expect("a producer");
    let keys = keys(16);
    let mut count = 0;
    for _ in 0..6 {
        enqueue(&producer, &keys, count, alpha).await;
        enqueue(&producer, &keys, count + 1, beta).await;
        count += 2;
    }
    let first = keys.len() * count as usize;
    until("the first version has handled what it knows", async || {
        effects_of::<D>(&store, MOVED).await.len() == first
    })
    .await;
    let mut new = vec![Process::start(&world, 8, Version::Two, None).await];
    for _ in 0..6 {
        enqueue(&producer, &keys, count, beta).await;
        enqueue(&producer, &keys, count + 1, gamma).await;
        count += 2;
        actix_rt::time::sleep(Duration::from_millis(50)).await;
    }
    // Messages that only the leaving version knows, of keys of their own.
    let late: Vec<String> = (0..8).map(|key| format!("late {key}")).collect();
    enqueue(&producer, &late, 0, alpha).await;
    for stopping in old {
        let load = async {
            for _ in 0..5 {
                enqueue(&producer, &keys, count, gamma).await;
                enqueue(&producer, &keys, count + 1, beta).await;
                count += 2;
                actix_rt::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let replace = async {
            stopping.stop().await;
            new.push(Process::start(&world, 8, Version::Two, None).await);
        };
        futures_util::join!(load, replace);
    }
    let number = until_rest::<D>(&store, 8).await;
    enqueue(&producer, &keys, count, gamma).await;
    count += 1;

    // Each late one is handled, or waits for a process that knows it; all others are handled.
    let others = keys.len() * count as usize;
    until("all is handled but what nobody knows", async || {
        let waiting = rows::<D>(&store, "retry", "message_type = 'test.alpha'").await;
        let effects = effects_of::<D>(&store, MOVED).await;
        effects.len() + waiting as usize == others + late.len()
    })
    .await;
    assert_eq!(
        rows::<D>(&store, "retry", "message_type <> 'test.alpha'").await,
        0
    );
    assert_eq!(rows::<D>(&store, "dead_letter", "1 = 1").await, 0);
    // Back to the first version: what waited is handled.
    let back = Process::start(&world, 8, Version::One, None).await;
    for process in new {
        process.stop().await;
    }
    let mut all = expected(&keys, count);
    all.extend(expected(&late, 1));
    assert_in_order::<D>(&store, &all).await;
    assert_eq!(rows::<D>(&store, "retry", "1 = 1").await, 0);
    if broker == BrokerKind::RabbitMq {
        assert_queues(&world, number, 8).await;
    }
    producer.stop().await.expect("a drain");
    back.stop().await;
}
