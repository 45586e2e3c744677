use std::time::{Duration, Instant};

use posta::broker::BrokerErrorKind;
use posta::broker::rabbitmq::{RabbitMq, RabbitMqOptions};

use super::messages::{rows, told, topology};
use crate::harness::rabbitmq::Vhost;

#[tokio::test]
async fn tls_trusts_the_given_authority_and_no_other() {
    let vhost = Vhost::fresh().await;
    let trusting = RabbitMqOptions::from_url(&vhost.url_tls()).unwrap();
    let authority = std::env::var("POSTA_TEST_POSTGRES_CA").expect("tests/run sets it");
    let broker = RabbitMq::new(trusting.clone().ca_file(&authority));
    broker.provide(&topology(1)).await.unwrap();
    let mut publisher = broker.publish().await.unwrap();
    let _ = publisher.publish_wave(&rows(10)).await.unwrap();

    let error = RabbitMq::new(trusting.clone()).publish().await.unwrap_err();
    assert_eq!(
        error.kind(),
        BrokerErrorKind::Configuration,
        "{}",
        told(&error)
    );
    let error = RabbitMq::new(trusting.ca_file("/no/such/file"))
        .publish()
        .await
        .unwrap_err();
    assert_eq!(
        error.kind(),
        BrokerErrorKind::Configuration,
        "{}",
        told(&error)
    );
    assert!(told(&error).contains("/no/such/file"), "{}", told(&error));
    // TLS spoken to a port without.
    let plain = vhost.url().replacen("amqp://", "amqps://", 1);
    let options = RabbitMqOptions::from_url(&plain)
        .unwrap()
        .ca_file(&authority)
        .connect_timeout(Duration::from_secs(5));
    let error = RabbitMq::new(options).publish().await.unwrap_err();
    assert_eq!(
        error.kind(),
        BrokerErrorKind::Configuration,
        "{}",
        told(&error)
    );
}

#[tokio::test]
async fn a_wrong_login_or_virtual_host_is_the_configurations_fault_and_shows_no_password() {
    let vhost = Vhost::fresh().await;
    let url = vhost.url();
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, rest) = rest.rsplit_once('@').unwrap();
    for url in [
        format!("{scheme}://nobody:s3cret@{rest}"),
        url.replacen("/test-", "/no-such-vhost-", 1),
    ] {
        let broker = RabbitMq::new(RabbitMqOptions::from_url(&url).unwrap());
        let error = broker.publish().await.unwrap_err();
        assert_eq!(
            error.kind(),
            BrokerErrorKind::Configuration,
            "{}",
            told(&error)
        );
        let shown = format!("{} {error:?} {broker:?}", told(&error));
        assert!(!shown.contains("s3cret"), "{shown}");
    }
}

#[tokio::test]
async fn nobody_there_is_told_at_once_and_to_all_who_ask() {
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let url = format!("amqp://u:s3cret@{address}");
    let broker = RabbitMq::new(RabbitMqOptions::from_url(&url).unwrap());
    let began = Instant::now();
    let all = futures_util::future::join_all((0..64).map(|_| broker.publish())).await;
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "{:?}",
        began.elapsed()
    );
    for result in all {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), BrokerErrorKind::Unavailable);
        assert!(!told(&error).contains("s3cret"));
        assert!(
            told(&error).contains(&address.to_string()),
            "{}",
            told(&error)
        );
    }
}

/// Somebody takes the connection and never says a word: 64 who ask wait once, together.
#[tokio::test]
async fn a_mute_server_costs_the_connect_timeout_once() {
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("amqp://{}", mute.local_addr().unwrap());
    let timeout = Duration::from_millis(500);
    let broker = RabbitMq::new(
        RabbitMqOptions::from_url(&url)
            .unwrap()
            .connect_timeout(timeout),
    );
    let began = Instant::now();
    let all = futures_util::future::join_all((0..64).map(|_| broker.publish())).await;
    assert!(began.elapsed() < timeout * 3, "{:?}", began.elapsed());
    for result in all {
        assert_eq!(result.unwrap_err().kind(), BrokerErrorKind::Timeout);
    }
}

#[tokio::test]
async fn another_node_takes_over_when_one_does_not_answer() {
    let vhost = Vhost::fresh().await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = nobody.local_addr().unwrap();
    drop(nobody);
    let address = vhost.address();
    let (host, port) = address.split_once(':').unwrap();
    for _ in 0..5 {
        let options = RabbitMqOptions::from_url(&vhost.url_by(dead)).unwrap();
        let broker = RabbitMq::new(options.node(host, port.parse().unwrap()));
        broker.publish().await.unwrap();
    }
}
