use bytes::Bytes;
use time::OffsetDateTime;

use super::error::EnvelopeError;
use super::limits::{CONTENT_TYPE_BYTES_MAX, VERSION_MAX};
use super::{
    Codec, Headers, KeyWriter, Message, MessageId, MessageType, OrderingKey, Slot, TraceContext,
};

/// What travels: a message's id, type, version, ordering key, headers and payload bytes.
///
/// Its fields' types keep the limits of [`super::limits`]; the payload's size is checked where it
/// is enqueued, since that limit can be configured.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Envelope {
    /// The message's identity.
    pub id: MessageId,
    /// The message type.
    pub message_type: MessageType,
    /// The version of the message's schema, from 1.
    pub version: u32,
    /// The ordering key, if the message has one.
    pub key: Option<OrderingKey>,
    /// Headers, trace context and conversation among them.
    pub headers: Headers,
    /// The payload's content type.
    pub content_type: String,
    /// The payload, as the codec made it.
    pub payload: Bytes,
    /// When the message was enqueued, by the database's clock; `None` until it is in the outbox.
    pub enqueued_at: Option<OffsetDateTime>,
}

impl Envelope {
    /// Encodes a message into an envelope with a new id and the current span's trace context.
    ///
    /// # Errors
    /// When the message's type, key or content type is not allowed or its codec refuses it.
    pub fn of<M: Message>(message: &M) -> Result<Self, EnvelopeError> {
        let mut key = KeyWriter::default();
        message.write_key(&mut key);
        let payload = M::Codec::encode(message)?;
        let content_type = <M::Codec as Codec<M>>::CONTENT_TYPE;
        let mut envelope = Self::builder(MessageType::from_static(M::TYPE)?, payload)
            .version(M::VERSION)
            .content_type(content_type)
            .build()?;
        envelope.key = key.finish()?;
        TraceContext::current().write(&mut envelope.headers)?;
        Ok(envelope)
    }

    /// An envelope from its parts; the rest has defaults.
    #[must_use]
    pub fn builder(message_type: MessageType, payload: impl Into<Bytes>) -> EnvelopeBuilder {
        EnvelopeBuilder {
            envelope: Self {
                id: MessageId::new(),
                message_type,
                version: 1,
                key: None,
                headers: Headers::default(),
                content_type: "application/octet-stream".to_owned(),
                payload: payload.into(),
                enqueued_at: None,
            },
        }
    }

    /// The slot that the message belongs to: of its key, or without one of its id.
    #[must_use]
    pub fn slot(&self) -> Slot {
        Slot::of(self.key.as_ref(), self.id)
    }
}

/// Builds an [`Envelope`] from parts that were stored or received.
#[derive(Debug)]
pub struct EnvelopeBuilder {
    envelope: Envelope,
}

impl EnvelopeBuilder {
    /// The message's identity; a new one by default.
    #[must_use]
    pub fn id(mut self, id: MessageId) -> Self {
        self.envelope.id = id;
        self
    }

    /// The schema's version; 1 by default.
    #[must_use]
    pub fn version(mut self, version: u32) -> Self {
        self.envelope.version = version;
        self
    }

    /// The ordering key; none by default.
    #[must_use]
    pub fn key(mut self, key: Option<OrderingKey>) -> Self {
        self.envelope.key = key;
        self
    }

    /// The headers; none by default.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.envelope.headers = headers;
        self
    }

    /// The payload's content type; `application/octet-stream` by default.
    #[must_use]
    pub fn content_type(mut self, content_type: impl Into<String>) -> Self {
        self.envelope.content_type = content_type.into();
        self
    }

    /// When the message was enqueued, by the database's clock.
    #[must_use]
    pub fn enqueued_at(mut self, at: Option<OffsetDateTime>) -> Self {
        self.envelope.enqueued_at = at;
        self
    }

    /// The envelope.
    ///
    /// # Errors
    /// When the version is 0 or over its limit, or the content type is too long or holds a NUL.
    pub fn build(self) -> Result<Envelope, EnvelopeError> {
        let Envelope {
            version,
            content_type,
            ..
        } = &self.envelope;
        if *version == 0 {
            return Err(EnvelopeError::empty("version"));
        }
        if *version > VERSION_MAX {
            return Err(EnvelopeError::too_many(
                "version",
                *version as usize,
                VERSION_MAX as usize,
            ));
        }
        if content_type.len() > CONTENT_TYPE_BYTES_MAX {
            return Err(EnvelopeError::too_long(
                "content type",
                content_type.len(),
                CONTENT_TYPE_BYTES_MAX,
            ));
        }
        if content_type.contains('\0') {
            return Err(EnvelopeError::forbidden("content type", 0));
        }
        Ok(self.envelope)
    }
}
