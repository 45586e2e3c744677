use std::time::Duration;

use super::child::Process;
use super::judged::{assert_all_in_order, assert_queues, until_rest};
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
    until_rest::<D>(&store, 2, 8).await;
    enqueue(&producer, &keys, count, gamma).await;
    count += 1;

    until(
        "the late ones are handled, or wait for their grace",
        async || {
            let waiting = rows::<D>(&store, "retry", "message_type = 'test.alpha'").await;
            let effects = effects_of::<D>(&store, MOVED).await;
            let handled = effects.iter().filter(|it| it.key.starts_with("late"));
            handled.count() + waiting as usize == late.len()
        },
    )
    .await;
    assert_eq!(rows::<D>(&store, "dead_letter", "1 = 1").await, 0);
    // Back to the first version for a moment: what waited is handled.
    let back = Process::start(&world, 8, Version::One, None).await;
    for process in new {
        process.stop().await;
    }
    let mut all = keys.clone();
    all.retain(|key| !key.starts_with("late"));
    until("the late ones are handled", async || {
        let effects = effects_of::<D>(&store, MOVED).await;
        effects
            .iter()
            .filter(|it| it.key.starts_with("late"))
            .count()
            == late.len()
    })
    .await;
    assert_eq!(rows::<D>(&store, "retry", "1 = 1").await, 0);
    forget_late::<D>(&store).await;
    assert_all_in_order::<D>(&store, &all, count).await;
    if broker == BrokerKind::RabbitMq {
        assert_queues(&world, 2, 8).await;
    }
    producer.stop().await.expect("a drain");
    back.stop().await;
}

/// Takes the late ones' effects out of the judge's sight, after each was counted once.
async fn forget_late<D: TestDatabase>(store: &D::Store) {
    use posta::store::Store;
    let mut session = store.begin().await.expect("a transaction");
    D::run(&mut session, "DELETE FROM effect WHERE key LIKE 'late %'")
        .await
        .expect("a deletion");
    session.commit().await.expect("a commit");
}
