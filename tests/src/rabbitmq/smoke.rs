use posta::broker::rabbitmq::RabbitMq;
use posta::broker::{PublishOutcome, Topology};
use posta::message::{Envelope, MessageType, OrderingKey};
use posta::store::{OutboxRow, RowId};

use crate::harness::rabbitmq::Vhost;

#[tokio::test]
async fn smoke() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options());
    let ty = MessageType::new("a.b").unwrap();
    let topology = Topology {
        consumer: "c".into(),
        partitions: 1,
        types: vec![ty.clone()],
    };
    broker.provide(&topology).await.unwrap();
    broker.provide(&topology).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    let rows: Vec<OutboxRow> = (0..10)
        .map(|n| {
            let envelope = Envelope::builder(ty.clone(), format!("{n}"))
                .key(Some(OrderingKey::new(format!("k{n}")).unwrap()))
                .build()
                .unwrap();
            OutboxRow {
                id: RowId {
                    slot: envelope.slot(),
                    position: n,
                },
                attempts: 0,
                message: Ok(envelope),
            }
        })
        .collect();
    let outcomes = publisher.publish_wave(&rows).await.unwrap();
    assert!(
        outcomes.iter().all(|it| *it == PublishOutcome::Confirmed),
        "{outcomes:?}"
    );
    let queue = topology.queues().next().unwrap();
    let mut subscription = broker.subscribe_to(&queue).await.unwrap();
    let mut got = Vec::new();
    while got.len() < 10 {
        let deliveries = subscription.receive_up_to(100).await.unwrap();
        let tags: Vec<_> = deliveries.iter().map(|it| it.tag).collect();
        subscription.acknowledge_all(&tags).await.unwrap();
        got.extend(deliveries.into_iter().map(|it| it.message.unwrap()));
    }
    assert!(
        got.iter()
            .zip(&rows)
            .all(|(a, b)| a == b.message.as_ref().unwrap())
    );
    subscription.end().await;
}
