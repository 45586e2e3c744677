use std::time::Duration;

use super::child::Process;
use super::judged::{assert_all_in_order, assert_queues, assert_waiting, until_rest};
use super::service::{HOPELESS, PARKED, Version, beta, enqueue, keys};
use crate::world::service::builder;
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination};

on_every_combination!(partitions_change_by_a_rolling_restart_under_load);

const PROCESSES: usize = 3;

/// From 4 to 8, then to 3: one process after another, while messages of many keys flow, one key is on
/// hold and one is parked.
async fn partitions_change_by_a_rolling_restart_under_load<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let mut processes = Vec::new();
    for _ in 0..PROCESSES {
        processes.push(Process::start(&world, 4, Version::One, None).await);
    }
    let good = keys(24);
    let mut all = good.clone();
    all.extend([HOPELESS.to_owned(), PARKED.to_owned()]);
    let producer = builder(&world).start().await.expect("a producer");
    let mut count = 0;
    let mut number = 0;
    for partitions in [8, 3] {
        for process in &mut processes {
            let stopping = std::mem::replace(
                process,
                Process::start(&world, partitions, Version::One, None).await,
            );
            let stop = stopping.stop();
            let load = async {
                for _ in 0..8 {
                    enqueue(&producer, &all, count, beta).await;
                    count += 1;
                    actix_rt::time::sleep(Duration::from_millis(30)).await;
                }
            };
            futures_util::join!(stop, load);
        }
        let rest = until_rest::<D>(&store, partitions);
        let load = async {
            for _ in 0..40 {
                enqueue(&producer, &all, count, beta).await;
                count += 1;
                actix_rt::time::sleep(Duration::from_millis(50)).await;
            }
        };
        (number, ()) = futures_util::join!(rest, load);
    }
    assert_all_in_order::<D>(&store, &good, count).await;
    assert_waiting::<D>(&store, count).await;
    if broker == BrokerKind::RabbitMq {
        assert_queues(&world, number, 3).await;
    }
    producer.stop().await.expect("a drain");
    for process in processes {
        process.stop().await;
    }
}
