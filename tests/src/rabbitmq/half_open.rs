use std::collections::HashSet;
use std::time::{Duration, Instant};

use posta::broker::rabbitmq::{RabbitMq, RabbitMqOptions};
use posta::broker::{BrokerError, BrokerErrorKind, PublishOutcome};

use super::messages::{SOON, acknowledge, hold, queue, receive, rows, told, topology};
use crate::harness::proxy::{Proxy, Traffic};
use crate::harness::rabbitmq::Vhost;

/// How many threads of connections there are in this process: lapin's, and the drivers' own.
fn io_threads() -> usize {
    let threads = std::fs::read_dir("/proc/self/task")
        .expect("Linux")
        .flatten();
    threads
        .filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok())
        .filter(|name| ["lapin-io-loop", "posta-rabbitmq"].contains(&name.trim()))
        .count()
}

async fn until_io_threads_are(count: usize) {
    let end = Instant::now() + SOON;
    while io_threads() != count {
        assert!(
            Instant::now() < end,
            "{} threads are left, not {count}",
            io_threads()
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// F23: nothing arrives any more, and no socket says so.
#[tokio::test]
async fn a_silent_network_is_noticed_in_about_two_heartbeats() {
    let vhost = Vhost::alone().await;
    let threads_before = io_threads();
    let proxy = Proxy::before(vhost.address()).await;
    let options = RabbitMqOptions::from_url(&vhost.url_by(proxy.address()))
        .unwrap()
        .heartbeat(Duration::from_secs(2))
        .connect_timeout(Duration::from_secs(1))
        .answer_timeout(Duration::from_secs(2));
    let broker = RabbitMq::new(options);
    broker.provide(&topology(1)).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    let _ = publisher.publish_wave(&rows(1)).await.unwrap();
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    let held = hold(&mut subscription, 1).await;

    proxy.set(Traffic::Stall);
    let began = Instant::now();
    let wave = rows(3);
    let (received, published) = tokio::join!(
        receive(&mut subscription, 10),
        publisher.publish_wave(&wave)
    );
    let noticed = began.elapsed();
    assert!(noticed < Duration::from_secs(8), "{noticed:?}");
    for error in [received.unwrap_err(), published.unwrap_err()] {
        assert_eq!(error.kind(), BrokerErrorKind::Unavailable);
        assert!(told(&error).contains("heartbeat"), "{}", told(&error));
    }
    let tags = [held[0].tag];
    subscription
        .acknowledge_all(&tags)
        .await
        .expect_err("the connection is dead");
    drop((publisher, subscription));

    // While the network stays silent, each attempt to connect ends in time and leaves nothing
    // behind.
    for _ in 0..3 {
        let began = Instant::now();
        let error = broker.publish().await.unwrap_err();
        assert!(error.is_transient(), "{}", told(&error));
        assert!(began.elapsed() < Duration::from_secs(2));
    }
    // Nor does one that nobody waits for any longer.
    for _ in 0..3 {
        let patience = Duration::from_millis(50);
        let given_up = tokio::time::timeout(patience, broker.publish()).await;
        assert!(given_up.is_err());
    }
    until_io_threads_are(threads_before + 1).await;

    proxy.set(Traffic::Pass);
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    let outcomes = publisher.publish_wave(&wave).await.unwrap();
    assert_eq!(outcomes, vec![PublishOutcome::Confirmed; 3]);
    let held = hold(&mut subscription, 4).await;
    acknowledge(&mut subscription, &held).await;
    assert_eq!(
        io_threads(),
        threads_before + 3,
        "one connection for each use, and the driver's own"
    );
    subscription.end().await;
    drop((publisher, broker));
    until_io_threads_are(threads_before).await;
}

/// The same with the server frozen instead of the network: its kernel still takes bytes.
#[tokio::test]
async fn a_frozen_broker_is_noticed_in_about_two_heartbeats() {
    let vhost = Vhost::alone().await;
    let options = vhost
        .options()
        .heartbeat(Duration::from_secs(1))
        .connect_timeout(Duration::from_secs(1));
    let broker = RabbitMq::new(options);
    broker.provide(&topology(1)).await.unwrap();
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    let frozen = vhost.pause().await;
    let began = Instant::now();
    let received = receive(&mut subscription, 1).await;
    let noticed = began.elapsed();
    let connected = broker.subscribe_to(&queue()).await;
    drop(frozen);
    assert_eq!(received.unwrap_err().kind(), BrokerErrorKind::Unavailable);
    assert!(noticed < Duration::from_secs(5), "{noticed:?}");
    assert!(connected.unwrap_err().is_transient());
}

/// A slow network is no dead one.
#[tokio::test]
async fn a_slow_network_only_takes_longer() {
    let vhost = Vhost::fresh().await;
    let proxy = Proxy::before(vhost.address()).await;
    let broker = RabbitMq::new(
        RabbitMqOptions::from_url(&vhost.url_by(proxy.address()))
            .unwrap()
            .heartbeat(Duration::from_secs(1)),
    );
    broker.provide(&topology(1)).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    proxy.set(Traffic::Delay(Duration::from_millis(100)));
    for _ in 0..10 {
        let outcomes = publisher.publish_wave(&rows(100)).await.unwrap();
        assert_eq!(outcomes, vec![PublishOutcome::Confirmed; 100]);
    }
    assert_eq!(*proxy.accepted().borrow(), 2);
}

/// A connection that is cut says so at once.
#[tokio::test]
async fn a_cut_connection_is_noticed_at_once() {
    let vhost = Vhost::fresh().await;
    let proxy = Proxy::before(vhost.address()).await;
    let broker = RabbitMq::new(RabbitMqOptions::from_url(&vhost.url_by(proxy.address())).unwrap());
    broker.provide(&topology(1)).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    let began = Instant::now();
    let (received, ()) = tokio::join!(receive(&mut subscription, 1), async {
        proxy.set(Traffic::Cut);
    });
    assert_eq!(received.unwrap_err().kind(), BrokerErrorKind::Unavailable);
    let error = publisher.publish_wave(&rows(1)).await.unwrap_err();
    assert_eq!(error.kind(), BrokerErrorKind::Unavailable);
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    proxy.set(Traffic::Pass);
    let mut publisher = broker.publish().await.unwrap();
    let _ = publisher.publish_wave(&rows(1)).await.unwrap();
}

/// Whatever happens to the connection in the middle of a wave: what was called confirmed is in the
/// queue.
#[tokio::test]
async fn what_is_confirmed_is_kept_whenever_the_connection_is_cut() {
    const ROUNDS: u64 = 40;
    let vhost = Vhost::fresh().await;
    let proxy = Proxy::before(vhost.address()).await;
    let options = RabbitMqOptions::from_url(&vhost.url_by(proxy.address())).unwrap();
    let broker = RabbitMq::new(options);
    broker.provide(&topology(1)).await.unwrap();
    let mut confirmed = HashSet::new();
    let mut failed = 0;
    for round in 0..ROUNDS {
        proxy.set(Traffic::Pass);
        let mut publisher = broker.publish().await.unwrap();
        let waves = async {
            for _ in 0..10 {
                let wave = rows(50);
                let outcomes = publisher.publish_wave(&wave).await?;
                for (row, outcome) in wave.iter().zip(outcomes) {
                    assert_eq!(outcome, PublishOutcome::Confirmed);
                    confirmed.insert(row.message.as_ref().unwrap().id);
                }
            }
            Ok::<_, BrokerError>(())
        };
        let cut = async {
            tokio::time::sleep(Duration::from_micros(round * 700)).await;
            proxy.set(Traffic::Cut);
        };
        let (published, ()) = tokio::join!(waves, cut);
        if let Err(error) = published {
            assert_eq!(
                error.kind(),
                BrokerErrorKind::Unavailable,
                "{}",
                told(&error)
            );
            failed += 1;
        }
    }
    assert!(
        failed > 0 && !confirmed.is_empty(),
        "{failed} of {ROUNDS} failed"
    );

    proxy.set(Traffic::Pass);
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    while !confirmed.is_empty() {
        let deliveries = receive(&mut subscription, 1_000).await.unwrap();
        acknowledge(&mut subscription, &deliveries).await;
        for delivery in deliveries {
            confirmed.remove(&delivery.message.unwrap().id);
        }
    }
    subscription.end().await;
}
