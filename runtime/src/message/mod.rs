//! What is sent: a message, and the envelope that carries it.
//!
//! A **message** is a value of the application's own type. Before any SQL it is turned into an
//! **envelope**: id, type, version, ordering key, headers, payload bytes. From there on nobody but
//! the handler looks into the payload; the outbox, the brokers, the inbox and the dead letters
//! carry it byte for byte (G8).
//!
//! This module knows nothing of databases, brokers or actors. All limits that an envelope must keep
//! are in [`limits`], with their sources, and are checked once, when the envelope is made.

mod codec;
mod envelope;
mod error;
pub(crate) mod generated;
mod headers;
pub mod limits;
mod message_id;
mod message_type;
mod ordering_key;
mod raw;
mod retry_override;
mod slot;
mod trace_context;
mod trace_parent;

pub use codec::{Codec, Json};
pub use envelope::{Envelope, EnvelopeBuilder};
pub use error::{DecodeError, EnvelopeError, EnvelopeErrorKind};
pub use headers::{CAUSATION_ID, CORRELATION_ID, Headers, TRACEPARENT, TRACESTATE};
pub use message_id::MessageId;
pub use message_type::MessageType;
pub use ordering_key::{KeyWriter, OrderingKey};
pub use raw::{Malformed, RawMessage};
pub use retry_override::{AfterDeadLetter, RetryOverride};
pub use slot::{SLOTS, Slot};
pub use trace_context::TraceContext;
pub use trace_parent::TraceParent;

/// A type that can be sent: a stable type name, a schema version, an optional ordering key, a
/// codec.
///
/// Derived by [`#[derive(Message)]`](derive@crate::Message).
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a message",
    label = "not a message",
    note = "derive it: `#[derive(Serialize, Deserialize, Message)] #[message(type = \"…\", version = 1)]`"
)]
pub trait Message: Sized + Send + Sync + 'static {
    /// The message type: a stable dotted string such as `document.signed`, never a Rust path.
    const TYPE: &'static str;
    /// The version of the message's schema, from 1.
    const VERSION: u32;
    /// What this type sets of the retry policy for itself; nothing by default.
    const RETRY: RetryOverride = RetryOverride::NONE;
    /// How a value becomes payload bytes and back.
    type Codec: Codec<Self>;

    /// Writes the ordering key's fields, in order; writes nothing for a message without a key.
    fn write_key(&self, key: &mut KeyWriter);
}
