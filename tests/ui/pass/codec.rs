//! Codecs other than the default one.

use bytes::Bytes;
use posta::message::{DecodeError, EnvelopeError};
use posta::{Codec, Json, Message};
use serde::{Deserialize, Serialize};

/// Carries what is made of bytes, as it is.
struct Plain;

impl<M> Codec<M> for Plain
where
    M: From<Bytes>,
    for<'m> &'m M: Into<Bytes>,
{
    const CONTENT_TYPE: &'static str = "application/octet-stream";

    fn encode(message: &M) -> Result<Bytes, EnvelopeError> {
        Ok(message.into())
    }

    fn decode(payload: &Bytes, _version: u32) -> Result<M, DecodeError> {
        Ok(payload.clone().into())
    }
}

/// Carries one type, and needs a parameter with a comma to be named.
struct Versioned<const MIN: u32, const MAX: u32>;

impl<const MIN: u32, const MAX: u32> Codec<Tick> for Versioned<MIN, MAX> {
    const CONTENT_TYPE: &'static str = "text/plain";

    fn encode(_message: &Tick) -> Result<Bytes, EnvelopeError> {
        Ok(Bytes::from_static(b"tick"))
    }

    fn decode(_payload: &Bytes, version: u32) -> Result<Tick, DecodeError> {
        if (MIN..=MAX).contains(&version) {
            Ok(Tick)
        } else {
            Err(DecodeError::new("version"))
        }
    }
}

#[derive(Message)]
#[message(type = "delivery.received", codec = Plain)]
struct NotSerialisable(Bytes);

impl From<Bytes> for NotSerialisable {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<&NotSerialisable> for Bytes {
    fn from(message: &NotSerialisable) -> Self {
        message.0.clone()
    }
}

#[derive(Message)]
#[message(codec = Versioned<1, 3>, type = "tick", version = 3)]
struct Tick;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", codec = Json)]
struct DefaultByName {
    document_id: u64,
}

fn content_type<M: Message>() -> &'static str {
    M::Codec::CONTENT_TYPE
}

#[test]
fn the_named_codec_carries_the_message() {
    assert_eq!(
        content_type::<NotSerialisable>(),
        "application/octet-stream"
    );
    assert_eq!(content_type::<Tick>(), "text/plain");
    assert_eq!(content_type::<DefaultByName>(), "application/json");
}

#[test]
fn a_codec_sees_the_version_that_the_sender_wrote() {
    let decode = <Tick as Message>::Codec::decode;
    assert!(decode(&Bytes::new(), Tick::VERSION).is_ok());
    assert!(decode(&Bytes::new(), 4).is_err());
}
