use std::time::Duration;

use posta::OrderingKey;
use posta::broker::rabbitmq::{RabbitMq, RabbitMqPublisher, RabbitMqSubscription};
use posta::broker::{BrokerError, Delivery, PartitionQueue, PublishOutcome, Topology};
use posta::layout::Generation;
use posta::message::{Envelope, MessageType};
use posta::store::{OutboxRow, RowId};

/// The longest time that a test waits for something that is to come.
pub(super) const SOON: Duration = Duration::from_secs(30);

pub(super) const CONSUMER: &str = "archive";
pub(super) const TYPE: &str = "document.signed";

pub(super) fn topology(partitions: u8) -> Topology {
    let message_type = MessageType::new(TYPE).expect("a valid type");
    Topology {
        consumer: CONSUMER.to_owned(),
        generation: Generation::first(partitions),
        types: vec![message_type],
    }
}

/// The only queue of a consumer with one partition.
pub(super) fn queue() -> PartitionQueue {
    topology(1).queues().next().expect("one partition")
}

pub(super) fn row_of(envelope: Envelope) -> OutboxRow {
    let id = RowId {
        slot: envelope.slot(),
        position: 0,
    };
    OutboxRow {
        id,
        attempts: 0,
        failed_at: None,
        letter: None,
        message: Ok(envelope),
    }
}

pub(super) fn row(key: impl Into<String>, payload: impl Into<Vec<u8>>) -> OutboxRow {
    let key = OrderingKey::new(key).expect("a valid key");
    let message_type = MessageType::new(TYPE).expect("a valid type");
    let envelope = Envelope::builder(message_type, payload.into())
        .key(Some(key))
        .build();
    row_of(envelope.expect("a valid envelope"))
}

/// Rows with a key each, and their number as payload.
pub(super) fn rows(count: usize) -> Vec<OutboxRow> {
    (0..count)
        .map(|n| row(format!("key-{n}"), n.to_string()))
        .collect()
}

/// Rows of one queue position each, in order, one wave after the other.
pub(super) async fn publish_in_order(publisher: &mut RabbitMqPublisher, count: usize) {
    for n in 0..count {
        let wave = [row("one-key", n.to_string())];
        assert_eq!(
            publisher.publish_wave(&wave).await.unwrap(),
            [PublishOutcome::Confirmed]
        );
    }
}

/// Makes a consumer with one partition and puts messages into its queue.
pub(super) async fn filled(broker: &RabbitMq, count: usize) {
    broker.provide(&topology(1)).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    publish_in_order(&mut publisher, count).await;
}

/// A publisher, also if the connection is just being lost: over a closed channel lapin may send so
/// much that the broker closes the connection.
pub(super) async fn publisher(broker: &RabbitMq) -> RabbitMqPublisher {
    let end = tokio::time::Instant::now() + SOON;
    loop {
        match broker.publish().await {
            Ok(publisher) => return publisher,
            Err(error) => assert!(error.is_transient(), "{}", told(&error)),
        }
        assert!(
            tokio::time::Instant::now() < end,
            "no publisher is to be had"
        );
    }
}

pub(super) async fn receive(
    subscription: &mut RabbitMqSubscription,
    limit: usize,
) -> Result<Vec<Delivery>, BrokerError> {
    let received = tokio::time::timeout(SOON, subscription.receive_up_to(limit)).await;
    received.expect("something comes soon")
}

/// Receives exactly so many.
pub(super) async fn hold(subscription: &mut RabbitMqSubscription, count: usize) -> Vec<Delivery> {
    let mut held = Vec::new();
    while held.len() < count {
        held.extend(receive(subscription, count - held.len()).await.unwrap());
    }
    held
}

pub(super) async fn acknowledge(subscription: &mut RabbitMqSubscription, deliveries: &[Delivery]) {
    let tags: Vec<_> = deliveries.iter().map(|delivery| delivery.tag).collect();
    subscription.acknowledge_all(&tags).await.unwrap();
}

/// The payload as the number that it is.
pub(super) fn number(delivery: &Delivery) -> usize {
    let payload = &delivery
        .message
        .as_ref()
        .expect("it is well-formed")
        .payload;
    std::str::from_utf8(payload)
        .expect("a number")
        .parse()
        .expect("a number")
}

pub(super) fn numbers(deliveries: &[Delivery]) -> Vec<usize> {
    deliveries.iter().map(number).collect()
}

/// An error with all that is behind it.
pub(super) fn told(error: &BrokerError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
