use std::collections::BTreeSet;

use posta::broker::rabbitmq::RabbitMq;

use super::messages::{acknowledge, filled, number, numbers, queue, receive};
use crate::harness::rabbitmq::Vhost;

/// F17: a message that ends its channel each time is set aside by the broker in the end, and kept; nothing is lost.
#[tokio::test]
async fn what_is_delivered_too_often_goes_to_the_dead_queue() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options().prefetch(10).delivery_limit(5));
    filled(&broker, 10).await;
    let mut handled = BTreeSet::new();
    for _crash in 0..12 {
        let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
        // Deliveries go on until the poison, number 3, ends the channel.
        let received = tokio::time::timeout(std::time::Duration::from_secs(3), async {
            loop {
                let deliveries = receive(&mut subscription, 1).await.unwrap();
                if number(&deliveries[0]) == 3 {
                    return;
                }
                acknowledge(&mut subscription, &deliveries).await;
                handled.extend(numbers(&deliveries));
            }
        });
        if received.await.is_err() {
            break;
        }
        subscription.end().await;
    }
    let dead = vhost
        .queue_until("archive.dead", |queue| queue["messages"].as_u64() > Some(0))
        .await;
    let kept = dead["messages"].as_u64().unwrap() as usize;
    // Innocents of the same prefetch window collect counts too, as each broker version sees fit; none is lost.
    let waiting = vhost.queue("archive.0")["messages"].as_u64().unwrap() as usize;
    assert_eq!(handled.len() + kept + waiting, 10, "{handled:?}, {dead}");
    assert!(!handled.contains(&3));
    let got = vhost.get("archive.dead");
    assert_eq!(got["routing_key"], "archive", "{got}");
    assert_eq!(got["properties"]["type"], "document.signed");
}
