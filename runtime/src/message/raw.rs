use std::collections::BTreeMap;

use bytes::Bytes;
use time::OffsetDateTime;

use super::error::EnvelopeError;
use super::{Envelope, Headers, MessageId, MessageType, OrderingKey};

/// What was stored or received, before anybody believes it: every part as text, the payload as
/// bytes.
///
/// Rows of the outbox may come from plain SQL and deliveries from foreign publishers.
/// [`RawMessage::parse`] makes an [`Envelope`] of a valid one; an invalid one becomes a dead letter
/// from these parts, its bytes intact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawMessage {
    /// The message id's text.
    pub id: Option<String>,
    /// The message type's text.
    pub message_type: Option<String>,
    /// The schema's version; absent means 1.
    pub version: Option<i64>,
    /// The ordering key's text.
    pub key: Option<String>,
    /// Header names and values.
    pub headers: BTreeMap<String, String>,
    /// The payload's content type; absent means `application/octet-stream`.
    pub content_type: Option<String>,
    /// The payload, byte for byte.
    pub payload: Bytes,
    /// When it was enqueued, by the sender's database clock.
    pub enqueued_at: Option<OffsetDateTime>,
}

/// A message that is no valid envelope: why, and all that is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Which field, and what is wrong with it.
    pub reason: String,
    /// The message as it was stored or received.
    pub raw: Box<RawMessage>,
}

impl RawMessage {
    /// The envelope, if every part is valid.
    ///
    /// # Errors
    /// [`Malformed`], which gives all parts back.
    pub fn parse(self) -> Result<Envelope, Malformed> {
        match self.envelope() {
            Ok(envelope) => Ok(envelope),
            Err(reason) => Err(Malformed {
                reason,
                raw: Box::new(self),
            }),
        }
    }

    fn envelope(&self) -> Result<Envelope, String> {
        let id = self
            .id
            .as_deref()
            .filter(|id| !id.is_empty())
            .ok_or("message id is missing")?;
        let id: MessageId = id
            .parse()
            .map_err(|_| format!("message id {id:?} is not a UUID"))?;
        let message_type = self.message_type.clone().ok_or("message type is missing")?;
        let message_type = MessageType::new(message_type).map_err(text)?;
        let version = self.version.unwrap_or(1);
        let version =
            u32::try_from(version).map_err(|_| format!("version {version} is out of range"))?;
        let key = self
            .key
            .clone()
            .map(OrderingKey::new)
            .transpose()
            .map_err(text)?;
        let mut headers = Headers::default();
        for (name, value) in &self.headers {
            headers.set(name.as_str(), value.as_str()).map_err(text)?;
        }
        let mut builder = Envelope::builder(message_type, self.payload.clone())
            .id(id)
            .version(version)
            .key(key)
            .headers(headers)
            .enqueued_at(self.enqueued_at);
        if let Some(content_type) = &self.content_type {
            builder = builder.content_type(content_type.as_str());
        }
        builder.build().map_err(text)
    }
}

fn text(error: EnvelopeError) -> String {
    error.to_string()
}

impl From<Envelope> for RawMessage {
    fn from(envelope: Envelope) -> Self {
        Self {
            id: Some(envelope.id.to_string()),
            message_type: Some(envelope.message_type.as_str().to_owned()),
            version: Some(i64::from(envelope.version)),
            key: envelope.key.map(|key| key.as_str().to_owned()),
            headers: envelope
                .headers
                .iter()
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            content_type: Some(envelope.content_type),
            payload: envelope.payload,
            enqueued_at: envelope.enqueued_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn valid() -> RawMessage {
        RawMessage {
            id: Some(MessageId::new().to_string()),
            message_type: Some("order.placed".to_owned()),
            payload: Bytes::from_static(b"\0\xff"),
            ..RawMessage::default()
        }
    }

    #[test]
    fn a_valid_message_survives_the_round_trip() {
        let envelope = valid().parse().unwrap();
        assert_eq!(
            RawMessage::from(envelope.clone()).parse().unwrap(),
            envelope
        );
    }

    type Spoil = fn(&mut RawMessage);

    #[test]
    fn each_bad_field_is_named_and_nothing_is_lost() {
        let cases: [(&str, Spoil); 6] = [
            ("message id is missing", |raw| raw.id = None),
            ("message id is missing", |raw| raw.id = Some(String::new())),
            ("message id \"7\" is not a UUID", |raw| {
                raw.id = Some("7".to_owned())
            }),
            ("message type is empty", |raw| {
                raw.message_type = Some(String::new())
            }),
            ("version -1 is out of range", |raw| raw.version = Some(-1)),
            ("ordering key is empty", |raw| raw.key = Some(String::new())),
        ];
        for (reason, spoil) in cases {
            let mut raw = valid();
            spoil(&mut raw);
            let malformed = raw.clone().parse().unwrap_err();
            assert_eq!(malformed.reason, reason);
            assert_eq!(*malformed.raw, raw);
        }
    }
}
