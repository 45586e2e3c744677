use std::time::Duration;

use posta::broker::rabbitmq::{RabbitMq, RabbitMqSubscription};
use posta::broker::{BrokerError, BrokerErrorKind, PublishOutcome};

use super::messages::{
    SOON, acknowledge, filled, hold, publish_in_order, queue, receive, row, rows, told, topology,
};
use crate::harness::rabbitmq::Vhost;

async fn failure(subscription: &mut RabbitMqSubscription) -> BrokerError {
    receive(subscription, 10)
        .await
        .expect_err("the end is an error")
}

/// F22 (b): the queue is deleted and made again while the connection stays up.
#[tokio::test]
async fn a_deleted_queue_ends_its_subscription() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options());
    filled(&broker, 0).await;
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    let (error, ()) = tokio::join!(failure(&mut subscription), async {
        vhost
            .queue_until("archive.1.0", |queue| queue["consumers"] == 1)
            .await;
        vhost.delete_queue("archive.1.0");
    });
    assert_eq!(error.kind(), BrokerErrorKind::Closed);
    assert!(
        told(&error).contains("cancelled the consumer"),
        "{}",
        told(&error)
    );
    // It goes on saying so.
    assert_eq!(
        failure(&mut subscription).await.kind(),
        BrokerErrorKind::Closed
    );

    filled(&broker, 5).await;
    let mut again = broker.subscribe_to(&queue()).await.unwrap();
    drop(subscription);
    let held = hold(&mut again, 5).await;
    acknowledge(&mut again, &held).await;
    vhost
        .queue_until("archive.1.0", |queue| {
            queue["consumers"] == 1 && queue["messages"] == 0
        })
        .await;
    again.end().await;
}

/// F22 (a): the broker restarts under a waiting subscription and a publisher.
#[tokio::test]
async fn a_restart_of_the_broker_ends_everything_and_all_is_made_anew() {
    let vhost = Vhost::alone().await;
    let broker = RabbitMq::new(vhost.options());
    filled(&broker, 2).await;
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    let held = hold(&mut subscription, 2).await;
    acknowledge(&mut subscription, &held[..1]).await;
    let mut publisher = broker.publish().await.unwrap();

    let (error, _) = tokio::join!(
        failure(&mut subscription),
        vhost.control("rabbitmq-stop", None)
    );
    assert!(error.is_transient(), "{}", told(&error));
    let error = publisher.publish_wave(&rows(1)).await.unwrap_err();
    assert_eq!(
        error.kind(),
        BrokerErrorKind::Unavailable,
        "{}",
        told(&error)
    );
    let tags = [held[1].tag];
    subscription
        .acknowledge_all(&tags)
        .await
        .expect_err("the channel is dead");
    let error = broker.publish().await.unwrap_err();
    assert_eq!(
        error.kind(),
        BrokerErrorKind::Unavailable,
        "{}",
        told(&error)
    );
    drop((publisher, subscription));
    vhost.control("rabbitmq-start", None).await;

    let mut publisher = broker.publish().await.unwrap();
    publish_in_order(&mut publisher, 3).await;
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    let held = hold(&mut subscription, 4).await;
    assert!(held[0].redelivered, "what was not acknowledged survived");
    acknowledge(&mut subscription, &held).await;
    subscription.end().await;
}

/// An operator closes connections; whoever asks next gets new ones, one for each use, however many
/// ask.
#[tokio::test]
async fn closed_connections_are_errors_and_one_of_each_is_made_anew() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options());
    broker.provide(&topology(8)).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    let mut subscriptions = Vec::new();
    for queue in topology(8).queues() {
        subscriptions.push(broker.subscribe_to(&queue).await.unwrap());
    }
    let failures = futures_util::future::join_all(subscriptions.iter_mut().map(failure));
    let (failures, _) = tokio::join!(failures, async {
        while vhost.connections().len() < 2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        vhost.close_connections().await
    });
    for error in failures {
        assert_eq!(error.kind(), BrokerErrorKind::Unavailable);
        assert!(
            told(&error).contains("CONNECTION_FORCED"),
            "{}",
            told(&error)
        );
    }
    let error = loop {
        match publisher.publish_wave(&rows(1)).await {
            // Its own connection may be closed a moment later.
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert_eq!(
        error.kind(),
        BrokerErrorKind::Unavailable,
        "{}",
        told(&error)
    );
    drop((subscriptions, publisher));

    let queues: Vec<_> = topology(8).queues().collect();
    let anew =
        futures_util::future::join_all(queues.iter().map(|queue| broker.subscribe_to(queue)));
    let (anew, publisher) = tokio::join!(anew, broker.publish());
    let outcomes = publisher.unwrap().publish_wave(&rows(100)).await.unwrap();
    assert_eq!(outcomes, vec![PublishOutcome::Confirmed; 100]);
    let mut got = 0;
    let anew: Vec<_> = anew.into_iter().map(Result::unwrap).collect();
    let mut anew = anew;
    for subscription in &mut anew {
        while let Ok(deliveries) =
            tokio::time::timeout(Duration::from_millis(500), subscription.receive_up_to(100)).await
        {
            got += deliveries.unwrap().len();
        }
    }
    assert!(got >= 100, "{got}");
    let end = tokio::time::Instant::now() + SOON;
    while vhost.connections().len() != 2 {
        assert!(
            tokio::time::Instant::now() < end,
            "{:?}",
            vhost.connections()
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// F25: the broker closes a channel whose handler takes too long; the other partition does not
/// notice.
#[tokio::test]
async fn a_delivery_held_too_long_ends_its_own_channel_only() {
    let vhost = Vhost::alone().await;
    let _timeout = vhost.set("consumer_timeout", "1000").await;
    let _tick = vhost.set("channel_tick_interval", "200").await;
    let broker = RabbitMq::new(vhost.options());
    broker.provide(&topology(2)).await.unwrap();
    let queues: Vec<_> = topology(2).queues().collect();
    let mut slow = broker.subscribe_to(&queues[0]).await.unwrap();
    let mut busy = broker.subscribe_to(&queues[1]).await.unwrap();

    let mut publisher = broker.publish().await.unwrap();
    let wave: Vec<_> = rows(20);
    let _ = publisher.publish_wave(&wave).await.unwrap();
    let (slow_ones, busy_ones): (Vec<_>, Vec<_>) = wave
        .iter()
        .partition(|row| queues[0].slots().contains(&row.id.slot.number()));
    let held = hold(&mut slow, slow_ones.len()).await;
    let all = hold(&mut busy, busy_ones.len()).await;
    acknowledge(&mut busy, &all).await;

    let error = failure(&mut slow).await;
    assert_eq!(error.kind(), BrokerErrorKind::Closed, "{}", told(&error));
    assert!(told(&error).contains("timed out"), "{}", told(&error));
    let tags: Vec<_> = held.iter().map(|delivery| delivery.tag).collect();
    let error = slow
        .acknowledge_all(&tags)
        .await
        .expect_err("acknowledged on a dead channel");
    assert_eq!(error.kind(), BrokerErrorKind::Closed);

    let other = wave
        .iter()
        .position(|row| queues[1].slots().contains(&row.id.slot.number()));
    let key = format!("key-{}", other.unwrap());
    let _ = publisher
        .publish_wave(&[row(key, "still there")])
        .await
        .unwrap();
    let more = hold(&mut busy, 1).await;
    acknowledge(&mut busy, &more).await;
    let mut again = broker.subscribe_to(&queues[0]).await.unwrap();
    let held = hold(&mut again, slow_ones.len()).await;
    acknowledge(&mut again, &held).await;
    again.end().await;
    busy.end().await;
}
