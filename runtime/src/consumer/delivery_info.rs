use crate::message::{Envelope, MessageId, OrderingKey};

/// What a handler may want to know of the delivery beside the message itself; ask for it as an
/// argument.
///
/// The message id is the idempotency key for calls to other systems: a handler can run more than
/// once (N2).
#[derive(Clone, Debug)]
pub struct DeliveryInfo {
    /// The message's identity, the same at every try and every copy.
    pub id: MessageId,
    /// The schema version that the sender wrote.
    pub version: u32,
    /// The ordering key.
    pub key: Option<OrderingKey>,
    /// The headers.
    pub headers: crate::message::Headers,
    /// Which try this is, from 1.
    pub attempt: u32,
}

impl DeliveryInfo {
    pub(crate) fn of(envelope: &Envelope, attempt: u32) -> Self {
        Self {
            id: envelope.id,
            version: envelope.version,
            key: envelope.key.clone(),
            headers: envelope.headers.clone(),
            attempt,
        }
    }
}
