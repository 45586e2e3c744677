//! The message that goes from intake to the consumers.

use bytes::Bytes;
use posta::message::{DecodeError, EnvelopeError, Headers, KeyWriter};
use posta::{Codec, Envelope, Message, MessageId};
use serde::Deserialize;

use crate::Delivery;

/// Header: what happened, as `X-GitHub-Event` said.
pub const EVENT: &str = "github-event";
/// Header: GitHub's signature of the body, as `X-Hub-Signature-256` had it.
pub const SIGNATURE: &str = "github-signature";

/// `webhook.received`: a delivery that the service has stored, keyed by the repository that it
/// tells of.
///
/// The payload is the body as GitHub sent it, byte for byte, so a subscriber in any language reads
/// what GitHub documents. What came in HTTP headers travels in the envelope's headers, and the
/// delivery id is the message id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookReceived {
    /// `owner/name`; deliveries about an organisation or an account have none, and so no order.
    pub repository: Option<String>,
    /// The body.
    pub body: Bytes,
}

impl WebhookReceived {
    /// Reads what the service must know of a body, and keeps the body as it is.
    ///
    /// # Errors
    /// When the body is no JSON object, or its repository no repository.
    pub fn of(body: Bytes) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Body {
            repository: Option<Repository>,
        }
        #[derive(Deserialize)]
        struct Repository {
            full_name: String,
        }
        let Body { repository } = serde_json::from_slice(&body)?;
        Ok(Self {
            repository: repository.map(|repository| repository.full_name),
            body,
        })
    }

    /// The envelope of a delivery: this message with the delivery's id as its own, and the rest in
    /// headers.
    ///
    /// # Errors
    /// When a part breaks one of the envelope's limits, such as a repository's name of more than
    /// 255 bytes.
    pub fn envelope(
        &self,
        delivery: &Delivery,
        signature: &str,
    ) -> Result<Envelope, EnvelopeError> {
        let mut envelope = Envelope::of(self)?;
        envelope.id = MessageId::from(delivery.id);
        envelope.headers.set(EVENT, &delivery.event)?;
        envelope.headers.set(SIGNATURE, signature)?;
        Ok(envelope)
    }
}

// By hand, since only some deliveries have a key: `#[message(key = repository)]` would demand one
// of each.
impl Message for WebhookReceived {
    const TYPE: &'static str = "webhook.received";
    const VERSION: u32 = 1;
    type Codec = Verbatim;

    fn write_key(&self, key: &mut KeyWriter) {
        if let Some(repository) = &self.repository {
            key.field(repository);
        }
    }
}

/// The codec that keeps the body's bytes.
#[derive(Clone, Copy, Debug)]
pub struct Verbatim;

impl Codec<WebhookReceived> for Verbatim {
    const CONTENT_TYPE: &'static str = "application/json";

    fn encode(message: &WebhookReceived) -> Result<Bytes, EnvelopeError> {
        Ok(message.body.clone())
    }

    fn decode(payload: &Bytes, _version: u32) -> Result<WebhookReceived, DecodeError> {
        WebhookReceived::of(payload.clone()).map_err(DecodeError::new)
    }
}

/// A header that every `webhook.received` has.
#[derive(Debug, thiserror::Error)]
#[error("the message has no header {0:?}")]
pub struct MissingHeader(&'static str);

/// The value of a header that must be there.
///
/// # Errors
/// When it is not: the message did not come from this service.
pub fn header<'h>(headers: &'h Headers, name: &'static str) -> Result<&'h str, MissingHeader> {
    headers.get(name).ok_or(MissingHeader(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(body: &'static str) -> Result<WebhookReceived, serde_json::Error> {
        WebhookReceived::of(Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn a_body_comes_back_byte_for_byte() {
        let body = " {\"b\":1.0, \"a\":\"\\u0000 é\",\"repository\":{\"full_name\":\"o/n\"}}\n";
        let message = received(body).unwrap();
        let payload = Verbatim::encode(&message).unwrap();
        assert_eq!(payload, body);
        assert_eq!(Verbatim::decode(&payload, 1).unwrap(), message);
    }

    #[test]
    fn only_a_body_with_a_repository_has_a_key() {
        let key = |body| Envelope::of(&received(body).unwrap()).unwrap().key;
        assert_eq!(
            key(r#"{"repository":{"full_name":"o/n"}}"#)
                .unwrap()
                .as_str(),
            "o/n"
        );
        assert!(key(r#"{"repository":null}"#).is_none());
        assert!(key("{}").is_none());
        assert!(received("[]").is_err());
        assert!(received(r#"{"repository":1}"#).is_err());
    }
}
