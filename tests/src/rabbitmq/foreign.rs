use lapin::BasicProperties;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldArray, FieldTable, LongString};
use posta::broker::rabbitmq::RabbitMq;
use posta::message::MessageId;
use serde_json::json;

use super::messages::{TYPE, acknowledge, hold, queue, row, row_of, topology};
use crate::harness::rabbitmq::Vhost;

/// A client that knows nothing of Posta.
struct Foreigner {
    _connection: lapin::Connection,
    channel: lapin::Channel,
}

impl Foreigner {
    async fn at(vhost: &Vhost) -> Self {
        let connection = lapin::Connection::connect(&vhost.url(), Default::default())
            .await
            .unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel
            .confirm_select(ConfirmSelectOptions::default())
            .await
            .unwrap();
        Self {
            _connection: connection,
            channel,
        }
    }

    async fn bind(&self, queue: &str, routing_key: &str) {
        let durable = QueueDeclareOptions {
            durable: true,
            ..Default::default()
        };
        let declared = self
            .channel
            .queue_declare(queue.into(), durable, FieldTable::default());
        declared.await.unwrap();
        let (queue, exchange, options) = (queue.into(), "posta".into(), Default::default());
        let arguments = FieldTable::default();
        let bound =
            self.channel
                .queue_bind(queue, exchange, routing_key.into(), options, arguments);
        bound.await.unwrap();
    }

    async fn publish(&self, properties: BasicProperties, payload: &[u8]) {
        let options = BasicPublishOptions {
            mandatory: true,
            immediate: false,
        };
        let key = format!("{TYPE}.7");
        let sent =
            self.channel
                .basic_publish("posta".into(), key.into(), options, payload, properties);
        let confirmed = sent.await.unwrap().await.unwrap();
        assert!(confirmed.is_ack() && confirmed.take_message().is_none());
    }
}

/// F15: whatever is missing, the message arrives as malformed with its reason and bytes, and the
/// next one is not held up.
#[tokio::test]
async fn a_message_without_properties_is_malformed_and_keeps_its_bytes() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options());
    broker.provide(&topology(1)).await.unwrap();
    let foreigner = Foreigner::at(&vhost).await;
    let id = MessageId::new().to_string();
    let bodies: [&[u8]; 5] = [b"nothing", b"\xff\0 empty id", b"no UUID", b"", b"no type"];
    let with_type = || BasicProperties::default().with_type(TYPE.into());
    for (properties, body) in [
        BasicProperties::default(),
        with_type().with_message_id("".into()),
        with_type()
            .with_message_id("order-7".into())
            .with_headers(FieldTable::default()),
        with_type(),
        BasicProperties::default().with_message_id(id.as_str().into()),
    ]
    .into_iter()
    .zip(bodies)
    {
        foreigner.publish(properties, body).await;
    }
    foreigner
        .publish(with_type().with_message_id(id.as_str().into()), b"valid")
        .await;

    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    let deliveries = hold(&mut subscription, 6).await;
    let reasons = [
        "message id is missing",
        "message id is missing",
        "message id \"order-7\" is not a UUID",
        "message id is missing",
        "message type is missing",
    ];
    for ((delivery, reason), body) in deliveries.iter().zip(reasons).zip(bodies) {
        let malformed = delivery.message.as_ref().unwrap_err();
        assert_eq!(malformed.reason, reason);
        assert_eq!(malformed.raw.payload, body);
        assert!(malformed.raw.headers.is_empty());
    }
    let valid = deliveries[5].message.as_ref().unwrap();
    assert_eq!((valid.version, &valid.key), (1, &None));
    assert_eq!(valid.content_type, "application/octet-stream");
    assert_eq!(valid.id.to_string(), id);
    acknowledge(&mut subscription, &deliveries).await;
    vhost
        .queue_until("archive.1.0", |queue| queue["messages"] == 0)
        .await;
    subscription.end().await;
}

#[tokio::test]
async fn headers_of_any_type_become_text() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options());
    broker.provide(&topology(1)).await.unwrap();
    let foreigner = Foreigner::at(&vhost).await;
    let mut headers = FieldTable::default();
    headers.insert("posta-version".into(), AMQPValue::ShortShortInt(3));
    headers.insert("posta-key".into(), AMQPValue::LongLongInt(42));
    headers.insert("flag".into(), AMQPValue::Boolean(true));
    headers.insert("none".into(), AMQPValue::Void);
    headers.insert(
        "bytes".into(),
        AMQPValue::LongString(LongString::from(&b"a\xff\0"[..])),
    );
    headers.insert("with space é".into(), AMQPValue::LongString("x".into()));
    headers.insert(
        "list".into(),
        AMQPValue::FieldArray(FieldArray::from(vec![true.into()])),
    );
    let properties = BasicProperties::default()
        .with_message_id(MessageId::new().to_string().as_str().into())
        .with_type(TYPE.into())
        .with_correlation_id("c-1".into())
        .with_timestamp(u64::MAX)
        .with_headers(headers);
    foreigner.publish(properties, b"{}").await;

    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    let deliveries = hold(&mut subscription, 1).await;
    let envelope = deliveries[0].message.as_ref().unwrap();
    assert_eq!(envelope.version, 3);
    assert_eq!(envelope.key.as_ref().unwrap().as_str(), "42");
    assert_eq!(envelope.enqueued_at, None);
    let headers: Vec<_> = envelope.headers.iter().collect();
    let expected = [
        ("bytes", "a\u{fffd}\u{fffd}"),
        ("correlation-id", "c-1"),
        ("flag", "true"),
        ("list", "[true]"),
        ("none", ""),
        ("with_space__", "x"),
    ];
    assert_eq!(headers, expected);
    subscription.end().await;
}

/// What an implementation that is not ours, RabbitMQ's management API, sees and sends.
#[tokio::test]
async fn another_client_reads_what_is_published_and_publishes_what_is_read() {
    let vhost = Vhost::fresh().await;
    let broker = RabbitMq::new(vhost.options().app_id("shop"));
    broker.provide(&topology(1)).await.unwrap();
    let mut envelope = row("order-1", "{\"a\":1}").message.unwrap();
    envelope.version = 2;
    envelope.content_type = "application/json".to_owned();
    envelope.headers.set("correlation-id", "c-1").unwrap();
    envelope.headers.set("traceparent", "00-1-2-01").unwrap();
    envelope.enqueued_at = time::OffsetDateTime::from_unix_timestamp(1_704_164_645).ok();
    // A foreign subscriber binds a queue of its own to a type and any slot.
    let foreigner = Foreigner::at(&vhost).await;
    foreigner.bind("mine", &format!("{TYPE}.*")).await;
    let mut publisher = broker.publish().await.unwrap();
    let _ = publisher
        .publish_wave(&[row_of(envelope.clone())])
        .await
        .unwrap();

    let got = vhost.get("mine");
    assert_eq!(got["payload"], "{\"a\":1}");
    assert_eq!(got["routing_key"], format!("{TYPE}.{}", envelope.slot()));
    let properties = &got["properties"];
    assert_eq!(
        *properties,
        json!({
            "message_id": envelope.id.to_string(),
            "type": TYPE,
            "content_type": "application/json",
            "timestamp": 1_704_164_645,
            "correlation_id": "c-1",
            "app_id": "shop",
            "delivery_mode": 2,
            "headers": {"posta-version": 2, "posta-key": "order-1", "traceparent": "00-1-2-01"},
        })
    );

    vhost.publish(&format!("{TYPE}.63"), properties, "{\"a\":1}");
    let mut subscription = broker.subscribe_to(&queue()).await.unwrap();
    let deliveries = hold(&mut subscription, 1).await;
    let deliveries = [deliveries, hold(&mut subscription, 1).await].concat();
    // The second came by another slot than its key's, and is handled all the same.
    for delivery in &deliveries {
        assert_eq!(*delivery.message.as_ref().unwrap(), envelope);
    }
    subscription.end().await;
}
