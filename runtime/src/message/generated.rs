//! What the code that `#[derive(Message)]` generates calls, and nobody else.

use std::fmt::Display;

use bytes::Bytes;

use super::{Codec, DecodeError, EnvelopeError, KeyWriter};

/// A field that can be part of an ordering key: whatever has a text.
#[diagnostic::on_unimplemented(
    message = "a field of type `{Self}` cannot be part of an ordering key",
    label = "has no text of its own",
    note = "an ordering key is made of its fields' texts, so each must be `std::fmt::Display`"
)]
pub trait KeyField: Display {}

#[diagnostic::do_not_recommend]
impl<T: Display + ?Sized> KeyField for T {}

/// Adds a field to an ordering key.
pub fn key_field<T: KeyField + ?Sized>(key: &mut KeyWriter, field: &T) {
    key.field(field);
}

/// The codec of a message whose derive has a mistake: it lets the rest of the program be checked,
/// and never runs.
#[derive(Clone, Copy, Debug)]
pub struct NoCodec;

impl<M> Codec<M> for NoCodec {
    const CONTENT_TYPE: &'static str = "";

    fn encode(_message: &M) -> Result<Bytes, EnvelopeError> {
        Err(EnvelopeError::encode("the message's derive has a mistake"))
    }

    fn decode(_payload: &Bytes, _version: u32) -> Result<M, DecodeError> {
        Err(DecodeError::new("the message's derive has a mistake"))
    }
}
