use std::time::Duration;

use posta::broker::PublishOutcome;
use posta::broker::rabbitmq::RabbitMq;

use super::messages::{acknowledge, hold, queue, rows, topology};
use crate::harness::rabbitmq::Vhost;

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Connections outlive the arbiter whose actor made them.
#[test]
fn a_connection_outlives_the_runtime_that_asked_for_it() {
    let first = runtime();
    let vhost = first.block_on(Vhost::fresh());
    let broker = RabbitMq::new(vhost.options());
    first.block_on(broker.provide(&topology(1))).unwrap();
    let mut publisher = first.block_on(broker.publish()).unwrap();
    let mut subscription = first.block_on(broker.subscribe_to(&queue())).unwrap();
    drop(first);

    let second = runtime();
    second.block_on(async {
        let outcomes = publisher.publish_wave(&rows(10)).await.unwrap();
        assert_eq!(outcomes, vec![PublishOutcome::Confirmed; 10]);
        let held = hold(&mut subscription, 10).await;
        acknowledge(&mut subscription, &held).await;
        subscription.end().await;
    });
}

/// A handler that keeps its arbiter's thread busy costs no heartbeat.
#[tokio::test]
async fn a_busy_thread_misses_no_heartbeat() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options().heartbeat(Duration::from_secs(1)));
    broker.provide(&topology(1)).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    std::thread::sleep(Duration::from_secs(4));
    let outcomes = publisher.publish_wave(&rows(3)).await.unwrap();
    assert_eq!(outcomes, vec![PublishOutcome::Confirmed; 3]);
    let held = hold(&mut subscription, 3).await;
    acknowledge(&mut subscription, &held).await;
    subscription.end().await;
}

/// Publishers and subscriptions that come and go, dropped at any point, leave the connection to the
/// others.
#[tokio::test]
async fn coming_and_going_leaves_the_connection_to_the_others() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options());
    broker.provide(&topology(4)).await.unwrap();
    let mut steady = broker.publish().await.unwrap();
    let queues: Vec<_> = topology(4).queues().collect();
    for round in 0..30_u64 {
        let wave = rows(20);
        let patience = Duration::from_micros(round * 150);
        let come_and_go = futures_util::future::join_all(queues.iter().map(|queue| {
            tokio::time::timeout(patience, async {
                let mut publisher = broker.publish().await.unwrap();
                let mut subscription = broker.subscribe_to(queue).await.unwrap();
                let _ = publisher.publish_wave(&wave).await.unwrap();
                subscription.receive_up_to(3).await.unwrap();
            })
        }));
        let (_, outcomes) = tokio::join!(come_and_go, steady.publish_wave(&wave));
        assert_eq!(outcomes.unwrap(), vec![PublishOutcome::Confirmed; 20]);
    }
    // Still the first two connections.
    let names = vhost.connections();
    assert!(names.len() <= 2, "{names:?}");
}
