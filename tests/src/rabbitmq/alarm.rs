use std::collections::HashSet;
use std::time::{Duration, Instant};

use posta::broker::rabbitmq::RabbitMq;
use posta::broker::{BrokerErrorKind, PublishOutcome};

use super::messages::{acknowledge, filled, hold, queue, rows, told};
use crate::harness::rabbitmq::Vhost;

/// F24: an alarm blocks publishing, at once and visibly; consuming goes on.
#[tokio::test]
async fn an_alarm_blocks_publishing_and_not_consuming() {
    let vhost = Vhost::alone().await;
    let broker = RabbitMq::new(vhost.options().prefetch(5));
    filled(&broker, 20).await;
    let mut publisher = broker.publish().await.unwrap();
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    assert_eq!(broker.blocked().await, None);

    let alarm = vhost.block().await;
    let wave = rows(20);
    // In the middle of a wave: the broker says so only when it is published to.
    let began = Instant::now();
    let error = publisher.publish_wave(&wave).await.unwrap_err();
    assert_eq!(error.kind(), BrokerErrorKind::Blocked, "{}", told(&error));
    assert!(told(&error).contains("low on memory"), "{}", told(&error));
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    // At the start of one, and for a new publisher.
    assert_eq!(
        publisher.publish_wave(&wave).await.unwrap_err().kind(),
        BrokerErrorKind::Blocked
    );
    drop(publisher);
    assert_eq!(
        broker.publish().await.unwrap_err().kind(),
        BrokerErrorKind::Blocked
    );
    assert!(broker.blocked().await.is_some());

    for _ in 0..4 {
        let held = hold(&mut subscription, 5).await;
        acknowledge(&mut subscription, &held).await;
    }
    let empty = vhost
        .queue_until("archive.1.0", |queue| queue["messages"] == 0)
        .await;
    assert_eq!(empty["messages"], 0, "nothing was published meanwhile");
    let began = Instant::now();
    subscription.end().await;
    assert!(began.elapsed() < Duration::from_secs(5));

    drop(alarm);
    let mut publisher = loop {
        match broker.publish().await {
            Ok(publisher) => break publisher,
            Err(error) => assert_eq!(error.kind(), BrokerErrorKind::Blocked),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(broker.blocked().await, None);
    let outcomes = publisher.publish_wave(&wave).await.unwrap();
    assert_eq!(outcomes, vec![PublishOutcome::Confirmed; 20]);
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    // What was on its way when the alarm came may arrive too: the same messages once more.
    let mut ids = HashSet::new();
    while ids.len() < 20 {
        let held = hold(&mut subscription, 1).await;
        ids.insert(held[0].message.as_ref().unwrap().id);
        acknowledge(&mut subscription, &held).await;
    }
    subscription.end().await;
}

/// A connection that is made during an alarm is not told before it publishes.
#[tokio::test]
async fn a_connection_made_during_an_alarm_is_blocked_by_its_first_wave() {
    let vhost = Vhost::alone().await;
    let broker = RabbitMq::new(vhost.options());
    broker.provide(&super::messages::topology(1)).await.unwrap();
    let alarm = vhost.block().await;
    let mut publisher = broker.publish().await.unwrap();
    let error = publisher.publish_wave(&rows(3)).await.unwrap_err();
    let blocked = broker.blocked().await;
    let began = Instant::now();
    drop((publisher, broker));
    drop(alarm);
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(error.kind(), BrokerErrorKind::Blocked);
    assert!(blocked.is_some());
}
