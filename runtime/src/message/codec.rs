use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{DecodeError, EnvelopeError};

/// How messages of a type become payload bytes and back; one per message type.
///
/// A message type names its codec with `#[message(codec = …)]`; [`Json`] is the default.
#[diagnostic::on_unimplemented(
    message = "the codec `{Self}` cannot carry the message `{M}`",
    label = "`{M}` has no encoding by `{Self}`",
    note = "`Json`, the default, carries what derives `serde::Serialize` and `serde::Deserialize`; \
            another codec carries a message by `impl Codec<{M}>`"
)]
pub trait Codec<M>: 'static {
    /// The content type of the payloads that it makes, such as `application/json`.
    const CONTENT_TYPE: &'static str;

    /// Encodes a message.
    ///
    /// # Errors
    /// When the message has no encoding; nothing was written anywhere then.
    fn encode(message: &M) -> Result<Bytes, EnvelopeError>;

    /// Decodes a payload that was written by this version of the schema or another one.
    ///
    /// # Errors
    /// When the bytes are no such message: permanent, the delivery becomes a dead letter with its
    /// bytes intact.
    fn decode(payload: &Bytes, version: u32) -> Result<M, DecodeError>;
}

/// JSON by serde, content type `application/json`. Unknown fields pass, whatever the version.
#[derive(Clone, Copy, Debug)]
pub struct Json;

#[diagnostic::do_not_recommend]
impl<M: Serialize + DeserializeOwned> Codec<M> for Json {
    const CONTENT_TYPE: &'static str = "application/json";

    fn encode(message: &M) -> Result<Bytes, EnvelopeError> {
        serde_json::to_vec(message)
            .map(Bytes::from)
            .map_err(EnvelopeError::encode)
    }

    fn decode(payload: &Bytes, _version: u32) -> Result<M, DecodeError> {
        serde_json::from_slice(payload).map_err(DecodeError::new)
    }
}
