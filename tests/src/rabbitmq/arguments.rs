use std::time::Instant;

use lapin::options::{BasicPublishOptions, ExchangeDeclareOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};
use posta::broker::rabbitmq::{Provision, RabbitMq};
use posta::broker::{BrokerErrorKind, Topology};
use posta::layout::Generation;
use posta::message::MessageType;

use super::messages::{rows, told, topology};
use crate::harness::rabbitmq::Vhost;

async fn channel(vhost: &Vhost) -> (lapin::Connection, lapin::Channel) {
    let connection = lapin::Connection::connect(&vhost.url(), Default::default())
        .await
        .unwrap();
    let channel = connection.create_channel().await.unwrap();
    (connection, channel)
}

/// F26: one clear error names queue, argument and both values; the others are provided; nothing is
/// deleted.
#[tokio::test]
async fn a_queue_with_other_arguments_is_named_and_the_others_are_provided() {
    let vhost = Vhost::fresh().await;
    let (_connection, foreign) = channel(&vhost).await;
    let durable = QueueDeclareOptions {
        durable: true,
        ..Default::default()
    };
    // All as it should be, but for the queue's type.
    let mut arguments = FieldTable::default();
    for (name, value) in [
        ("x-dead-letter-exchange", "posta.dead"),
        ("x-dead-letter-routing-key", "archive"),
        ("x-overflow", "reject-publish"),
    ] {
        arguments.insert(name.into(), AMQPValue::LongString(value.into()));
    }
    arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
    foreign
        .queue_declare("archive.1.1".into(), durable, arguments)
        .await
        .unwrap();
    foreign
        .basic_publish(
            "".into(),
            "archive.1.1".into(),
            BasicPublishOptions::default(),
            b"kept",
            Default::default(),
        )
        .await
        .unwrap();

    let broker = RabbitMq::new(vhost.options());
    let began = Instant::now();
    for _ in 0..2 {
        let error = broker.provide(&topology(4)).await.unwrap_err();
        assert_eq!(error.kind(), BrokerErrorKind::Topology);
        assert!(!error.is_transient());
        let told = told(&error);
        for part in [
            "\"archive.1.1\"",
            "x-queue-type",
            "'quorum'",
            "current is none",
        ] {
            assert!(told.contains(part), "{part} is not in {told:?}");
        }
    }
    assert!(began.elapsed().as_secs() < 10);
    for queue in ["archive.1.0", "archive.1.2", "archive.1.3", "archive.dead"] {
        let queue = vhost.queue(queue);
        assert_eq!(queue["type"], "quorum");
        assert_eq!(queue["durable"], true);
    }
    let arguments = &vhost.queue("archive.1.3")["arguments"];
    assert_eq!(arguments["x-single-active-consumer"], true);
    assert_eq!(arguments["x-delivery-limit"], 20);
    assert_eq!(arguments["x-dead-letter-exchange"], "posta.dead");
    let queue = vhost
        .queue_until("archive.1.1", |queue| queue["messages"] == 1)
        .await;
    assert_eq!(queue["type"], "classic");
    // The other queues are bound: all messages of their slots arrive.
    let mut publisher = broker.publish().await.unwrap();
    let wave = rows(50);
    let outcomes = publisher.publish_wave(&wave).await.unwrap();
    for (row, outcome) in wave.iter().zip(outcomes) {
        let mine = topology(4)
            .queues()
            .nth(1)
            .unwrap()
            .slots()
            .contains(&row.id.slot.number());
        assert_eq!(
            outcome == posta::broker::PublishOutcome::Confirmed,
            !mine,
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn several_queues_with_other_arguments_are_all_told() {
    let vhost = Vhost::fresh().await;
    let before = RabbitMq::new(vhost.options().delivery_limit(7));
    before.provide(&topology(3)).await.unwrap();
    let broker = RabbitMq::new(vhost.options());
    let error = broker.provide(&topology(4)).await.unwrap_err();
    assert_eq!(error.kind(), BrokerErrorKind::Topology);
    let told = told(&error);
    for part in [
        "archive.1.0",
        "archive.1.1",
        "archive.1.2",
        "x-delivery-limit",
        "'20'",
        "'7'",
    ] {
        assert!(told.contains(part), "{part} is not in {told:?}");
    }
    assert_eq!(vhost.queue("archive.1.3")["type"], "quorum");
}

#[tokio::test]
async fn an_exchange_of_another_kind_is_named() {
    let vhost = Vhost::fresh().await;
    let (_connection, foreign) = channel(&vhost).await;
    let durable = ExchangeDeclareOptions {
        durable: true,
        ..Default::default()
    };
    let kind = lapin::ExchangeKind::Fanout;
    foreign
        .exchange_declare("posta".into(), kind, durable, FieldTable::default())
        .await
        .unwrap();
    let broker = RabbitMq::new(vhost.options());
    for error in [
        broker.provide(&topology(1)).await.unwrap_err(),
        broker.publish().await.map(|_| ()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), BrokerErrorKind::Topology);
        let told = told(&error);
        for part in ["exchange \"posta\"", "'topic'", "'fanout'"] {
            assert!(told.contains(part), "{part} is not in {told:?}");
        }
    }
}

#[tokio::test]
async fn verifying_makes_nothing_and_names_what_is_missing() {
    let vhost = Vhost::fresh().await;
    let verifier = RabbitMq::new(vhost.options().provision(Provision::Verify));
    let error = verifier.provide(&topology(2)).await.unwrap_err();
    assert_eq!(error.kind(), BrokerErrorKind::Topology);
    assert!(
        told(&error).contains("no exchange 'posta'"),
        "{}",
        told(&error)
    );
    assert_eq!(
        verifier.publish().await.unwrap_err().kind(),
        BrokerErrorKind::Topology
    );

    RabbitMq::new(vhost.options())
        .provide(&topology(2))
        .await
        .unwrap();
    verifier.provide(&topology(2)).await.unwrap();
    let error = verifier.provide(&topology(3)).await.unwrap_err();
    assert!(
        told(&error).contains("no queue 'archive.1.2'"),
        "{}",
        told(&error)
    );
    assert!(vhost.queue("archive.1.2").is_null());
    let missing = topology(3).queues().nth(2).unwrap();
    let error = verifier.subscribe_to(&missing).await.unwrap_err();
    assert_eq!(error.kind(), BrokerErrorKind::Topology);
    assert!(
        told(&error).contains("no queue 'archive.1.2'"),
        "{}",
        told(&error)
    );

    let trusting = RabbitMq::new(vhost.options().provision(Provision::LeaveAlone));
    trusting.provide(&topology(3)).await.unwrap();
    assert!(vhost.queue("archive.1.2").is_null());
}

/// 640 bindings on 64 queues are in flight together.
#[tokio::test]
async fn a_large_consumer_is_declared_soon() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options());
    let types = (0..10)
        .map(|n| MessageType::new(format!("type.{n}")).unwrap())
        .collect();
    let topology = Topology {
        consumer: "large".to_owned(),
        generation: Generation::first(64),
        types,
    };
    let began = Instant::now();
    broker.provide(&topology).await.unwrap();
    let first = began.elapsed();
    let began = Instant::now();
    broker.provide(&topology).await.unwrap();
    let again = began.elapsed();
    println!("64 queues with 640 bindings: {first:?}, again {again:?}");
    assert!(
        first.as_secs() < 60 && again.as_secs() < 20,
        "{first:?}, {again:?}"
    );
}

/// Arguments that others added are others' business as long as ours are there.
#[tokio::test]
async fn a_dead_queue_with_other_arguments_is_named_too() {
    let vhost = Vhost::fresh().await;
    let (_connection, foreign) = channel(&vhost).await;
    let durable = QueueDeclareOptions {
        durable: true,
        ..Default::default()
    };
    let mut arguments = FieldTable::default();
    arguments.insert("x-max-length".into(), AMQPValue::LongInt(5));
    foreign
        .queue_declare("archive.dead".into(), durable, arguments)
        .await
        .unwrap();
    let error = RabbitMq::new(vhost.options())
        .provide(&topology(1))
        .await
        .unwrap_err();
    assert!(
        told(&error).contains("\"archive.dead\""),
        "{}",
        told(&error)
    );
    assert_eq!(vhost.queue("archive.1.0")["type"], "quorum");
}
