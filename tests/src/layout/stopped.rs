use std::time::Duration;

use posta::layout::Generation;
use posta::lease::Resource;
use posta::store::{LeaseStore, Store};

use super::child::Process;
use super::judged::{assert_all_in_order, assert_queues, until_rest};
use super::service::{MOVED, Version, beta, enqueue, keys};
use crate::world::effects::count;
use crate::world::service::builder;
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(a_process_that_slept_through_a_change_has_no_part_in_the_former_layout);

async fn a_process_that_slept_through_a_change_has_no_part_in_the_former_layout<D: TestDatabase>(
    broker: BrokerKind,
) {
    let mut world = World::<D>::fresh(broker).await;
    if broker == BrokerKind::RabbitMq {
        // The broker gives up on it soon, and what it has in hand comes back.
        world.broker_url += "?heartbeat=1";
    }
    let store = world.store();
    let sleeper = Process::start(&world, 4, Version::One, None).await;
    let producer = builder(&world).start().await.expect("a producer");
    let keys = keys(16);
    let mut sent = 0;
    for _ in 0..10 {
        enqueue(&producer, &keys, sent, beta).await;
        sent += 1;
    }
    assert_all_in_order::<D>(&store, &keys, sent).await;
    pause_between_transactions::<D>(&store, &sleeper).await;
    // The broker gives it these: it has leases, and messages in hand.
    for _ in 0..10 {
        enqueue(&producer, &keys, sent, beta).await;
        sent += 1;
    }
    let awake = Process::start(&world, 8, Version::One, None).await;
    for _ in 0..10 {
        enqueue(&producer, &keys, sent, beta).await;
        sent += 1;
        actix_rt::time::sleep(Duration::from_millis(50)).await;
    }
    let number = until_rest::<D>(&store, 8).await;
    sleeper.resume();
    for _ in 0..10 {
        enqueue(&producer, &keys, sent, beta).await;
        sent += 1;
        actix_rt::time::sleep(Duration::from_millis(50)).await;
    }
    // It wishes 4, and works with 8.
    let in_use = Generation {
        number,
        partitions: 8,
    };
    until("both share the layout in use", async || {
        owners::<D>(&store, in_use).await == 2
    })
    .await;
    assert_eq!(owners::<D>(&store, Generation::first(4)).await, 0);
    assert_all_in_order::<D>(&store, &keys, sent).await;
    if broker == BrokerKind::RabbitMq {
        assert_queues(&world, number, 8).await;
    }
    producer.stop().await.expect("a drain");
    awake.stop().await;
    sleeper.stop().await;
}

/// Stops a process while it has no transaction open: with one, it has SQLite's only lock, or the rows
/// that whoever goes on with its messages waits for.
async fn pause_between_transactions<D: TestDatabase>(store: &D::Store, process: &Process) {
    until("a process is stopped between transactions", async || {
        process.pause();
        // An open one is open still after this.
        actix_rt::time::sleep(Duration::from_millis(300)).await;
        let free = tokio::time::timeout(Duration::from_secs(2), open_transactions::<D>(store));
        if free.await == Ok(0) {
            return true;
        }
        process.resume();
        false
    })
    .await;
}

/// Transactions that are open and idle, as far as the database knows; on SQLite, whose lock the one
/// that asks had, there are none.
async fn open_transactions<D: TestDatabase>(store: &D::Store) -> i64 {
    let sql = match D::KIND {
        "sqlite" => "SELECT 0 AS count",
        _ => {
            "SELECT count(*) AS count FROM pg_stat_activity
             WHERE datname = current_database() AND state LIKE 'idle in transaction%'
               AND state_change < clock_timestamp() - interval '250 milliseconds'"
        }
    };
    count::<D>(store, sql).await
}

/// How many processes own partitions of a layout.
async fn owners<D: TestDatabase>(store: &D::Store, generation: Generation) -> usize {
    let mut session = store.begin().await.expect("a transaction");
    let resource = Resource::partitions(MOVED, generation);
    let owners = store.owners(&mut session, &resource).await;
    session.commit().await.expect("a commit");
    let mut owners: Vec<_> = owners
        .expect("the owners")
        .into_iter()
        .filter_map(|(_, owner)| owner)
        .collect();
    owners.sort_unstable();
    owners.dedup();
    owners.len()
}
