use posta::broker::BrokerErrorKind;
use posta::broker::rabbitmq::RabbitMq;

use super::messages::{acknowledge, hold, queue, row, told, topology};
use crate::harness::rabbitmq::Vhost;

/// F14: a big queue does not come into memory at once.
#[tokio::test]
async fn the_broker_hands_out_no_more_than_the_prefetch() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options().prefetch(64));
    broker.provide(&topology(1)).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    for wave in 0..20 {
        let wave: Vec<_> = (0..500)
            .map(|n| row(format!("{wave}-{n}"), vec![0; 1024]))
            .collect();
        publisher
            .publish_wave(&wave)
            .await
            .unwrap()
            .into_iter()
            .for_each(|outcome| {
                assert_eq!(outcome, posta::broker::PublishOutcome::Confirmed);
            });
    }
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    let held = hold(&mut subscription, 64).await;
    let shown = vhost
        .queue_until("archive.1.0", |queue| {
            queue["messages_unacknowledged"].as_u64() > Some(0)
        })
        .await;
    assert_eq!(shown["messages_unacknowledged"], 64, "{shown}");
    acknowledge(&mut subscription, &held[..32]).await;
    hold(&mut subscription, 32).await;
    subscription.end().await;
}

/// F14: 0 would mean *no limit*, so it is refused before anything is sent.
#[tokio::test]
async fn a_prefetch_of_zero_is_refused() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options().prefetch(0));
    let error = broker.subscribe_to(&queue()).await.unwrap_err();
    assert_eq!(error.kind(), BrokerErrorKind::Configuration);
    assert!(told(&error).contains("prefetch is 0"), "{}", told(&error));
    assert!(!error.is_transient());
}
