//! CloudEvents 1.0 in binary mode, as foreign publishers send them over AMQP 0-9-1: attributes are
//! headers with a prefix.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::message::RawMessage;

/// Both prefixes that the binding allows.
const PREFIXES: [&str; 2] = ["cloudEvents_", "cloudEvents:"];

/// Takes what the message's own properties leave open from the CloudEvents attributes, if it has
/// these: id, type, time and, as the ordering key, the partition key. The attributes stay among the
/// headers.
pub(super) fn complete(raw: &mut RawMessage) {
    let Some(prefix) = PREFIXES.into_iter().find(|prefix| {
        raw.headers
            .get(&format!("{prefix}specversion"))
            .is_some_and(|it| it == "1.0")
    }) else {
        return;
    };
    let attribute = |name: &str| raw.headers.get(&format!("{prefix}{name}")).cloned();
    let id = attribute("id");
    let message_type = attribute("type");
    let key = attribute("partitionkey");
    let time = attribute("time").and_then(|time| OffsetDateTime::parse(&time, &Rfc3339).ok());

    raw.id = raw.id.take().filter(|id| !id.is_empty()).or(id);
    raw.message_type = raw
        .message_type
        .take()
        .filter(|it| !it.is_empty())
        .or(message_type);
    raw.key = raw.key.take().or(key);
    raw.enqueued_at = raw.enqueued_at.or(time);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MessageId;

    #[test]
    fn attributes_fill_what_the_properties_leave_open() {
        for prefix in PREFIXES {
            let id = MessageId::new();
            let mut raw = RawMessage::default();
            for (name, value) in [
                ("specversion", "1.0"),
                ("id", &id.to_string()),
                ("type", "com.example.placed"),
                ("source", "/shop"),
                ("partitionkey", "order-1"),
                ("time", "2024-01-02T03:04:05.5Z"),
            ] {
                raw.headers
                    .insert(format!("{prefix}{name}"), value.to_owned());
            }
            complete(&mut raw);
            let envelope = raw.parse().unwrap();
            assert_eq!(envelope.id, id);
            assert_eq!(envelope.message_type.as_str(), "com.example.placed");
            assert_eq!(envelope.key.unwrap().as_str(), "order-1");
            assert_eq!(
                envelope.enqueued_at.unwrap().unix_timestamp(),
                1_704_164_645
            );
            assert_eq!(
                envelope.headers.get(&format!("{prefix}source")),
                Some("/shop")
            );
        }
    }

    #[test]
    fn headers_that_only_look_alike_change_nothing() {
        let mut raw = RawMessage::default();
        raw.headers
            .insert("cloudEvents_id".to_owned(), "7".to_owned());
        let before = raw.clone();
        complete(&mut raw);
        assert_eq!(raw, before);
    }
}
