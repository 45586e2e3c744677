use bytes::Bytes;
use lapin::BasicProperties;
use lapin::types::{AMQPValue, FieldTable, LongString, ShortString};
use time::OffsetDateTime;

use super::{cloud_events, field};
use crate::message::{CORRELATION_ID, Envelope, RawMessage};

/// Header with the schema's version, a long int.
pub(super) const VERSION: &str = "posta-version";
/// Header with the ordering key, a long string; absent without key.
pub(super) const KEY: &str = "posta-key";

/// AMQP's delivery mode of messages that survive a restart of the broker.
const PERSISTENT: u8 = 2;
/// Longest AMQP short string, in bytes.
const SHORT_STRING_BYTES_MAX: usize = 255;

/// Headers that RabbitMQ acts on: further routing keys. A message that brought them along would go
/// elsewhere, or cost the channel.
const ROUTING: [&str; 2] = ["CC", "BCC"];

/// Headers that RabbitMQ writes. What it wrote about one delivery is no part of the message.
const WRITTEN_BY_BROKER: [&str; 9] = [
    "x-death",
    "x-delivery-count",
    "x-acquired-count",
    "x-first-death-exchange",
    "x-first-death-queue",
    "x-first-death-reason",
    "x-last-death-exchange",
    "x-last-death-queue",
    "x-last-death-reason",
];

/// An envelope as AMQP properties and headers, with their size on the wire.
pub(super) struct Encoded {
    pub(super) properties: BasicProperties,
    /// Bytes that properties and headers take in the content header's frame.
    pub(super) bytes: usize,
}

/// The properties of an envelope.
///
/// # Errors
/// When the envelope has a header that RabbitMQ would act on.
pub(super) fn encode(envelope: &Envelope, app_id: Option<&str>) -> Result<Encoded, String> {
    let mut headers = FieldTable::default();
    headers.insert(VERSION.into(), AMQPValue::LongInt(envelope.version as i32));
    if let Some(key) = &envelope.key {
        headers.insert(KEY.into(), long_string(key.as_str()));
    }
    let mut properties = BasicProperties::default()
        .with_message_id(short_string(&envelope.id.to_string())?)
        .with_type(short_string(envelope.message_type.as_str())?)
        .with_content_type(short_string(&envelope.content_type)?)
        .with_delivery_mode(PERSISTENT);
    for (name, value) in envelope.headers.iter() {
        if [VERSION, KEY].contains(&name)
            || ROUTING.contains(&name)
            || WRITTEN_BY_BROKER.contains(&name)
        {
            return Err(format!(
                "the header {name:?} has a meaning of its own on RabbitMQ"
            ));
        }
        if name == CORRELATION_ID && value.len() <= SHORT_STRING_BYTES_MAX {
            properties = properties.with_correlation_id(short_string(value)?);
        } else {
            headers.insert(short_string(name)?, long_string(value));
        }
    }
    let seconds = envelope.enqueued_at.map(OffsetDateTime::unix_timestamp);
    if let Some(seconds) = seconds.and_then(|seconds| u64::try_from(seconds).ok()) {
        properties = properties.with_timestamp(seconds);
    }
    if let Some(app_id) = app_id {
        properties = properties.with_app_id(short_string(app_id)?);
    }
    let properties = properties.with_headers(headers);
    Ok(Encoded {
        bytes: wire_bytes(&properties),
        properties,
    })
}

/// A delivery's parts as they came, with nothing believed yet. Whatever a foreign publisher left
/// out is absent; what has another type is turned into text; text that is not UTF-8 or holds a NUL
/// is mended where it breaks. The payload is not touched.
pub(super) fn decode(properties: &BasicProperties, payload: Vec<u8>) -> RawMessage {
    let text =
        |property: &Option<ShortString>| property.as_ref().map(|it| field::clean(it.as_str()));
    let mut raw = RawMessage {
        id: text(properties.message_id()),
        message_type: text(properties.kind()),
        content_type: text(properties.content_type()),
        payload: Bytes::from(payload),
        enqueued_at: properties.timestamp().and_then(field::time),
        ..RawMessage::default()
    };
    for (name, value) in properties.headers().iter().flatten() {
        match name.as_str() {
            VERSION => match field::integer(value) {
                Some(version) => raw.version = Some(version),
                None => {
                    // No version: what the header said stays visible beside the refusal.
                    raw.version = Some(-1);
                    raw.headers.insert(VERSION.to_owned(), field::text(value));
                }
            },
            KEY => raw.key = Some(field::text(value)),
            name if WRITTEN_BY_BROKER.contains(&name) => {}
            name => {
                raw.headers.insert(field::name(name), field::text(value));
            }
        }
    }
    if let Some(correlation_id) = text(properties.correlation_id()) {
        raw.headers
            .insert(CORRELATION_ID.to_owned(), correlation_id);
    }
    cloud_events::complete(&mut raw);
    raw
}

/// How often a quorum queue delivered the message before, as far as it says: nothing on the first
/// delivery. Newer brokers count apart what was only handed out and given back; either counts here.
pub(super) fn delivery_count(properties: &BasicProperties) -> i64 {
    let headers = properties.headers().as_ref();
    let count = |name: &str| {
        headers
            .and_then(|headers| headers.inner().get(name))
            .and_then(field::integer)
            .unwrap_or(0)
    };
    count("x-delivery-count").max(count("x-acquired-count"))
}

fn short_string(text: &str) -> Result<ShortString, String> {
    ShortString::try_new(text).map_err(|error| error.to_string())
}

fn long_string(text: &str) -> AMQPValue {
    AMQPValue::LongString(LongString::from(text))
}

/// Only of what [`encode`] writes.
fn wire_bytes(properties: &BasicProperties) -> usize {
    let short = |text: &Option<ShortString>| text.as_ref().map_or(0, |it| 1 + it.as_str().len());
    let value = |value: &AMQPValue| match value {
        AMQPValue::LongString(text) => 4 + text.len(),
        _ => 4,
    };
    let table = properties.headers().as_ref().map_or(0, |headers| {
        4 + headers
            .into_iter()
            .map(|(name, it)| 1 + name.as_str().len() + 1 + value(it))
            .sum::<usize>()
    });
    let flags = 2;
    flags
        + table
        + short(properties.message_id())
        + short(properties.kind())
        + short(properties.content_type())
        + short(properties.correlation_id())
        + short(properties.app_id())
        + properties.timestamp().map_or(0, |_| 8)
        + properties.delivery_mode().map_or(0, |_| 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{MessageType, OrderingKey};

    fn full() -> Envelope {
        let mut envelope = Envelope::builder(MessageType::new("order.placed").unwrap(), "{}")
            .version(7)
            .key(Some(OrderingKey::new("order-1").unwrap()))
            .content_type("application/json")
            .enqueued_at(OffsetDateTime::from_unix_timestamp(1_700_000_000).ok())
            .build()
            .unwrap();
        envelope.headers.set(CORRELATION_ID, "c").unwrap();
        envelope.headers.set("traceparent", "00-1-2-01").unwrap();
        envelope
    }

    #[test]
    fn an_envelope_survives_the_way_through_properties() {
        let mut envelope = full();
        for correlation_id in ["c".to_owned(), "é".repeat(128)] {
            envelope
                .headers
                .set(CORRELATION_ID, correlation_id)
                .unwrap();
            let encoded = encode(&envelope, None).unwrap();
            let raw = decode(&encoded.properties, envelope.payload.to_vec());
            assert_eq!(raw.parse().unwrap(), envelope);
        }
    }

    #[test]
    fn a_version_that_is_no_number_is_refused_and_stays_visible() {
        let mut headers = FieldTable::default();
        headers.insert(VERSION.into(), long_string("two"));
        let raw = decode(
            &BasicProperties::default().with_headers(headers),
            Vec::new(),
        );
        assert_eq!(raw.version, Some(-1));
        assert_eq!(raw.headers[VERSION], "two");
    }

    #[test]
    fn what_the_broker_wrote_about_a_delivery_is_no_part_of_the_message() {
        let mut headers = FieldTable::default();
        for name in WRITTEN_BY_BROKER {
            headers.insert(name.into(), AMQPValue::LongLongInt(3));
        }
        let properties = BasicProperties::default().with_headers(headers);
        assert!(decode(&properties, Vec::new()).headers.is_empty());
        assert_eq!(delivery_count(&properties), 3);
        assert_eq!(delivery_count(&BasicProperties::default()), 0);
    }
}
