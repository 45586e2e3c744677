use std::sync::atomic::{AtomicBool, Ordering};

use posta::broker::rabbitmq::{RabbitMq, RabbitMqPublisher};
use posta::broker::{BrokerDriver, PublishOutcome, Topology};
use posta::layout::Generation;
use posta::message::{Envelope, MessageType};
use posta::store::OutboxRow;
use posta::{OrderingKey, Sqlite};

use super::messages::{CONSUMER, acknowledge, numbers, receive, row_of};
use crate::harness::rabbitmq::Vhost;

const TYPES: usize = 300;
/// Neighbours are of types that are far from each other, whatever the order of unbinding.
const STRIDE: usize = 101;
/// So many come before the queue is unbound, and at least so many after it.
const SOME: usize = 50;

fn types() -> impl Iterator<Item = MessageType> {
    (0..TYPES).map(|n| MessageType::new(format!("document.{n}")).expect("a valid type"))
}

/// A layout of one partition.
fn topology(number: u32) -> Topology {
    Topology {
        consumer: CONSUMER.to_owned(),
        generation: Generation {
            number,
            partitions: 1,
        },
        types: types().collect(),
    }
}

/// The next message of one key, of another type than the one before.
fn row(number: usize) -> OutboxRow {
    let message_type = types().nth(number * STRIDE % TYPES).expect("a type");
    let key = OrderingKey::new("one-key").expect("a valid key");
    let envelope = Envelope::builder(message_type, number.to_string().into_bytes())
        .key(Some(key))
        .build();
    row_of(envelope.expect("a valid envelope"))
}

/// Publishes one after the other until some have gone out after the signal; how many.
async fn publish(
    publisher: &mut RabbitMqPublisher,
    begun: &tokio::sync::Notify,
    end: &AtomicBool,
) -> usize {
    let (mut count, mut after) = (0, 0);
    while after < SOME {
        after += usize::from(end.load(Ordering::SeqCst));
        let outcomes = publisher.publish_wave(&[row(count)]).await.unwrap();
        assert_eq!(outcomes, [PublishOutcome::Confirmed]);
        count += 1;
        if count == SOME {
            begun.notify_one();
        }
    }
    count
}

/// While a layout's queue is unbound under load, it gets a key's messages up to one of them and none
/// behind it, whatever their types: one that only the next layout got would be overtaken by the next
/// one that came here as well.
#[tokio::test]
async fn an_unbound_queue_has_a_beginning_of_each_keys_messages() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options());
    let (leaving, next) = (topology(1), topology(2));
    broker.provide(&leaving).await.unwrap();
    broker.provide(&next).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    let (begun, end) = (tokio::sync::Notify::new(), AtomicBool::new(false));
    let (count, ()) = tokio::join!(publish(&mut publisher, &begun, &end), async {
        begun.notified().await;
        BrokerDriver::<Sqlite>::unbind(&broker, &leaving)
            .await
            .unwrap();
        end.store(true, Ordering::SeqCst);
    });
    let depths = BrokerDriver::<Sqlite>::depths(&broker, &leaving)
        .await
        .unwrap();
    let before = depths[0].expect("the queue is there").ready as usize;
    assert!((SOME..count).contains(&before), "{before} of {count}");

    for (topology, expected) in [(leaving, before), (next, count)] {
        let queue = topology.queues().next().expect("one partition");
        let mut subscription = broker.subscribe_to(&queue).await.unwrap();
        let mut got = Vec::new();
        while got.len() < expected {
            let held = receive(&mut subscription, expected - got.len()).await;
            let held = held.expect("deliveries");
            acknowledge(&mut subscription, &held).await;
            got.extend(numbers(&held));
        }
        assert_eq!(got, (0..expected).collect::<Vec<_>>());
        subscription.end().await;
    }
}
