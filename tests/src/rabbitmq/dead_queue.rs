use std::collections::BTreeSet;
use std::time::Duration;

use posta::broker::rabbitmq::{RabbitMq, RabbitMqOptions};

use super::messages::{acknowledge, filled, numbers, queue, row, row_of};
use crate::harness::proxy::{Proxy, Traffic};
use crate::harness::rabbitmq::Vhost;

/// The queue is empty, or all that it holds is on its way to the dead queue.
const QUIET: Duration = Duration::from_secs(1);

/// The numbers in the dead queue, taken out. A payload that the API cannot show as text is no
/// number.
fn dead(vhost: &Vhost) -> BTreeSet<usize> {
    let mut numbers = BTreeSet::new();
    loop {
        let got = vhost.get("archive.dead");
        if got.is_null() {
            return numbers;
        }
        assert_eq!(got["routing_key"], "archive");
        assert_eq!(got["properties"]["type"], "document.signed");
        numbers.extend(
            got["payload"]
                .as_str()
                .and_then(|payload| payload.parse::<usize>().ok()),
        );
    }
}

/// F17: a message that ends its channel each time is set aside by the broker in the end, and kept.
/// Those that were prefetched with it count up too, as each broker version sees fit: some may be
/// kept beside it, and none is lost.
#[tokio::test]
async fn what_is_delivered_too_often_is_kept_in_the_dead_queue() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options().prefetch(10).delivery_limit(5));
    filled(&broker, 10).await;
    let mut handled = BTreeSet::new();
    let mut poisoned = true;
    while poisoned {
        poisoned = false;
        let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
        // One at a time; number 3 ends the channel.
        while let Ok(received) = tokio::time::timeout(QUIET, subscription.receive_up_to(1)).await {
            let deliveries = received.unwrap();
            poisoned = numbers(&deliveries) == [3];
            if poisoned {
                break;
            }
            acknowledge(&mut subscription, &deliveries).await;
            handled.extend(numbers(&deliveries));
        }
        subscription.end().await;
    }
    vhost
        .queue_until("archive.1.0", |queue| queue["messages"] == 0)
        .await;
    let dead = dead(&vhost);
    assert!(dead.contains(&3) && !handled.contains(&3));
    assert!(handled.is_superset(&BTreeSet::from([0, 1, 2])));
    let all: BTreeSet<usize> = handled.union(&dead).copied().collect();
    assert_eq!(all, (0..10).collect());
}

/// A foreign publisher's text that is no UTF-8 where AMQP asks for it ends the whole connection, in
/// lapin's parser. The delivery limit ends that too, and nothing is lost.
#[tokio::test]
async fn what_cannot_be_parsed_goes_to_the_dead_queue() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options().prefetch(10).delivery_limit(5));
    filled(&broker, 3).await;
    let proxy = Proxy::before(vhost.address()).await;
    let url = vhost.url_by(proxy.address());
    let foreigner = RabbitMq::new(RabbitMqOptions::from_url(&url).unwrap());
    let mut publisher = foreigner.publish().await.unwrap();
    proxy.set(Traffic::Exchange(b"QQQQQQ", b"\xff\xfe\xff\xfe\xff\xfe"));
    let mut envelope = row("one-key", "3").message.unwrap();
    envelope.headers.set("correlation-id", "QQQQQQ").unwrap();
    let _ = publisher.publish_wave(&[row_of(envelope)]).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    let _ = publisher
        .publish_wave(&[row("one-key", "4")])
        .await
        .unwrap();

    let mut handled = BTreeSet::new();
    let mut ends = 0;
    let mut failed = true;
    while failed {
        failed = false;
        assert!(ends < 20, "{handled:?}");
        let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
        while let Ok(received) = tokio::time::timeout(QUIET, subscription.receive_up_to(10)).await {
            failed = received.is_err();
            let Ok(deliveries) = received else {
                ends += 1;
                break;
            };
            let tags: Vec<_> = deliveries.iter().map(|it| it.tag).collect();
            if subscription.acknowledge_all(&tags).await.is_ok() {
                handled.extend(numbers(&deliveries));
            }
        }
    }
    assert!(ends > 0);
    vhost
        .queue_until("archive.1.0", |queue| queue["messages"] == 0)
        .await;
    let dead = dead(&vhost);
    assert!(dead.contains(&3) && !handled.contains(&3));
    let all: BTreeSet<usize> = handled.union(&dead).copied().collect();
    assert_eq!(all, (0..5).collect());
}
