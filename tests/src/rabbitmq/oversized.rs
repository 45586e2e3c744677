use posta::broker::rabbitmq::{RabbitMq, RabbitMqOptions};
use posta::broker::{BrokerErrorKind, PublishOutcome};

use super::messages::{publisher as publisher_of, queue, row, row_of, rows, told, topology};
use crate::harness::rabbitmq::Vhost;

fn refused(outcome: &PublishOutcome, part: &str) {
    match outcome {
        PublishOutcome::TooLarge(reason) | PublishOutcome::Malformed(reason) => {
            assert!(reason.contains(part), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

/// F33: over the configured limit, a message is refused alone.
#[tokio::test]
async fn a_message_over_the_limit_is_refused_and_its_neighbours_are_confirmed() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options().message_bytes_max(100_000));
    broker.provide(&topology(2)).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    let mut wave = rows(5);
    wave[2] = row("big", vec![0; 100_001]);
    let outcomes = publisher.publish_wave(&wave).await.unwrap();
    refused(&outcomes[2], "more than the 100000 that are configured");
    for index in [0, 1, 3, 4] {
        assert_eq!(outcomes[index], PublishOutcome::Confirmed);
    }
}

/// F33: headers that do not fit into one frame of the connection would cost the connection.
#[tokio::test]
async fn headers_over_the_frame_are_refused_and_their_neighbours_are_confirmed() {
    let vhost = Vhost::fresh().await;
    let url = format!("{}?frame_max=4096", vhost.url());
    let broker = RabbitMq::new(RabbitMqOptions::from_url(&url).unwrap());
    broker.provide(&topology(1)).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    // One byte too many, and exactly as much as fits.
    let with_header = |key: &str, bytes: usize| {
        let mut envelope = row(key, vec![7; 10_000]).message.unwrap();
        envelope.headers.set("h", "x".repeat(bytes)).unwrap();
        row_of(envelope)
    };
    let mut fits = 3_800;
    loop {
        let wave = [row("a", "x"), with_header("b", fits + 1), row("c", "x")];
        let outcomes = publisher.publish_wave(&wave).await.unwrap();
        assert_eq!(outcomes[0], PublishOutcome::Confirmed);
        assert_eq!(outcomes[2], PublishOutcome::Confirmed);
        if outcomes[1] != PublishOutcome::Confirmed {
            refused(&outcomes[1], "more than the 4096 of the connection");
            break;
        }
        fits += 1;
        assert!(fits < 4_096);
    }
}

/// A header that RabbitMQ acts on would send copies elsewhere or cost the channel.
#[tokio::test]
async fn a_header_that_the_broker_acts_on_is_refused_alone() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options());
    broker.provide(&topology(1)).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    for name in ["CC", "BCC", "posta-key", "x-death"] {
        let mut envelope = row("a", "x").message.unwrap();
        envelope.headers.set(name, "elsewhere").unwrap();
        let outcomes = publisher
            .publish_wave(&[row_of(envelope), row("b", "x")])
            .await
            .unwrap();
        refused(&outcomes[0], name);
        assert_eq!(outcomes[1], PublishOutcome::Confirmed);
    }
}

/// F33: the broker's own limit is lower. It costs one wave, nobody's attempt, and is known from
/// then on.
#[tokio::test]
async fn the_brokers_own_limit_is_learned_from_its_refusal() {
    let vhost = Vhost::alone().await;
    let _limit = vhost.set("max_message_size", "50000").await;
    let broker = RabbitMq::new(vhost.options());
    broker.provide(&topology(1)).await.unwrap();
    let wave = [row("a", "x"), row("b", vec![0; 60_000]), row("c", "x")];
    let mut publisher = broker.publish().await.unwrap();
    let error = publisher.publish_wave(&wave).await.unwrap_err();
    drop(publisher);
    let mut publisher = publisher_of(&broker).await;
    let outcomes = publisher.publish_wave(&wave).await.unwrap();
    assert_eq!(error.kind(), BrokerErrorKind::Closed, "{}", told(&error));
    assert!(told(&error).contains("max size 50000"), "{}", told(&error));
    assert_eq!(outcomes[0], PublishOutcome::Confirmed);
    refused(&outcomes[1], "more than the 50000 that the broker takes");
    assert_eq!(outcomes[2], PublishOutcome::Confirmed);
}

/// A wave of many large messages goes out in parts, each bounded in bytes, and comes to its end.
#[tokio::test]
async fn a_wave_of_large_messages_is_sent_in_parts() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options());
    broker.provide(&topology(1)).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    let sizes = [9_000_000, 10, 3_000_000, 3_000_000, 3_000_000, 0, 9_000_000];
    let wave: Vec<_> = sizes
        .iter()
        .enumerate()
        .map(|(n, size)| row(format!("{n}"), vec![b'x'; *size]))
        .collect();
    let outcomes = publisher.publish_wave(&wave).await.unwrap();
    assert_eq!(outcomes, vec![PublishOutcome::Confirmed; 7]);
    let depth = broker.depth_of(&queue()).await.unwrap();
    assert_eq!((depth.ready, depth.consumers), (7, Some(0)));
}
