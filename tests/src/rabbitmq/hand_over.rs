use posta::broker::rabbitmq::RabbitMq;

use super::messages::{acknowledge, filled, hold, numbers, queue};
use crate::harness::rabbitmq::Vhost;

/// F13: what was prefetched goes back before the next in line gets anything, and in order.
#[tokio::test]
async fn a_closed_subscription_hands_over_in_order() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options().prefetch(5));
    filled(&broker, 20).await;
    let mut first = broker.subscribe_to(&queue()).await.unwrap();
    let mut second = broker.subscribe_to(&queue()).await.unwrap();

    // Five are at the first, and it is in the middle of number 0.
    let mut in_hand = hold(&mut first, 1).await;
    vhost
        .queue_until("archive.1.0", |queue| queue["messages_unacknowledged"] == 5)
        .await;
    assert_eq!(numbers(&in_hand), [0]);
    // It finishes that one, and stops.
    acknowledge(&mut first, &in_hand).await;
    first.end().await;

    in_hand = hold(&mut second, 5).await;
    assert_eq!(numbers(&in_hand), [1, 2, 3, 4, 5]);
    let redelivered: Vec<bool> = in_hand
        .iter()
        .map(|delivery| delivery.redelivered)
        .collect();
    assert_eq!(&redelivered[..4], [true, true, true, true]);
    acknowledge(&mut second, &in_hand).await;
    let mut order = numbers(&in_hand);
    while order.len() < 19 {
        let next = hold(&mut second, 1).await;
        acknowledge(&mut second, &next).await;
        order.extend(numbers(&next));
    }
    assert_eq!(order, (1..20).collect::<Vec<_>>());
    second.end().await;
}

/// The same when nobody had the time to close: a panic, a dropped actor.
#[tokio::test]
async fn a_dropped_subscription_hands_over_in_order() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options().prefetch(5));
    filled(&broker, 12).await;
    let mut expected = 0;
    while expected < 12 {
        let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
        let held = hold(&mut subscription, 2).await;
        assert_eq!(numbers(&held), [expected, expected + 1]);
        acknowledge(&mut subscription, &held[..1]).await;
        expected += 1;
        drop(subscription);
        if expected == 11 {
            break;
        }
    }
}
