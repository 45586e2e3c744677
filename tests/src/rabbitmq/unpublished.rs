use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lapin::options::ExchangeDeclareOptions;
use posta::broker::rabbitmq::{Provision, RabbitMq};
use posta::broker::{BrokerErrorKind, PublishOutcome};

use super::messages::{hold, publisher, queue, rows, told, topology};
use crate::harness::rabbitmq::Vhost;

/// F20: the broker closes the channel over an exchange that is not there; the call fails with its
/// words, at once.
#[tokio::test]
async fn a_missing_exchange_fails_the_call_with_the_brokers_words() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(
        vhost
            .options()
            .exchange("no-such-exchange")
            .provision(Provision::LeaveAlone),
    );
    let began = Instant::now();
    for _ in 0..3 {
        let mut publisher = publisher(&broker).await;
        let error = publisher.publish_wave(&rows(200)).await.unwrap_err();
        assert_eq!(error.kind(), BrokerErrorKind::Closed);
        let told = told(&error);
        assert!(
            told.contains("NOT_FOUND - no exchange 'no-such-exchange'"),
            "{told}"
        );
        assert!(error.is_transient());
        // The same publisher again: it says at once that it is of no use any more.
        let error = publisher.publish_wave(&rows(1)).await.unwrap_err();
        assert!(error.is_transient());
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");

    // A fresh channel works when the exchange is there.
    let connection = lapin::Connection::connect(&vhost.url(), Default::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    let durable = ExchangeDeclareOptions {
        durable: true,
        ..Default::default()
    };
    let kind = lapin::ExchangeKind::Topic;
    channel
        .exchange_declare("no-such-exchange".into(), kind, durable, Default::default())
        .await
        .unwrap();
    let mut publisher = publisher(&broker).await;
    let outcomes = publisher.publish_wave(&rows(2)).await.unwrap();
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, PublishOutcome::Returned(_)))
    );
}

/// F21: a message that no queue takes is confirmed by the broker, and not done.
#[tokio::test]
async fn what_no_queue_takes_is_returned_until_a_queue_is_bound() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options());
    let mut publisher = broker.publish().await.unwrap();
    let wave = rows(3);
    for outcome in publisher.publish_wave(&wave).await.unwrap() {
        match outcome {
            PublishOutcome::Returned(reason) => {
                assert!(reason.contains("312 NO_ROUTE"), "{reason}")
            }
            other => panic!("{other:?}"),
        }
    }
    broker.provide(&topology(1)).await.unwrap();
    let outcomes = publisher.publish_wave(&wave).await.unwrap();
    assert_eq!(outcomes, vec![PublishOutcome::Confirmed; 3]);
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    assert_eq!(hold(&mut subscription, 3).await.len(), 3);
    subscription.end().await;
}

/// An empty wave, and one in which nothing may be offered to the broker, need no answer of it.
#[tokio::test]
async fn a_wave_of_nothing_is_through_at_once() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options().message_bytes_max(10));
    let mut publisher = broker.publish().await.unwrap();
    assert_eq!(publisher.publish_wave(&[]).await.unwrap(), []);
    let outcomes = publisher.publish_wave(&rows(2)).await.unwrap();
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, PublishOutcome::TooLarge(_)))
    );
}

/// After a cancelled wave nobody can tell whose confirms come: the publisher only fails.
#[tokio::test]
async fn a_publisher_whose_wave_was_cancelled_only_fails() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options());
    let mut publisher = broker.publish().await.unwrap();
    let wave = rows(200);
    let cancelled = publisher.publish_wave(&wave).now_or_never();
    assert!(cancelled.is_none());
    let error = publisher.publish_wave(&wave).await.unwrap_err();
    assert_eq!(error.kind(), BrokerErrorKind::Closed);
    let mut publisher = broker.publish().await.unwrap();
    let outcomes = publisher.publish_wave(&wave).await.unwrap();
    assert!(
        outcomes
            .iter()
            .all(|outcome| matches!(outcome, PublishOutcome::Returned(_)))
    );
}
