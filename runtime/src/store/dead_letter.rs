use std::future::Future;

use super::database::ConnectionOf;
use super::{Store, StoreError};
use crate::message::RawMessage;

/// At which end a message was set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// On its way from the outbox to the broker.
    Dispatch,
    /// At this consumer.
    Consumer(String),
}

/// A message to set aside.
#[derive(Clone, Debug)]
pub struct NewDeadLetter {
    /// Where.
    pub origin: Origin,
    /// The message as it was stored or received, its payload byte for byte.
    pub message: RawMessage,
    /// The reason's kind, one word of a closed list (`malformed`, `undecodable`, `unknown_type`,
    /// `too_large`).
    pub reason: &'static str,
    /// The error chain, for the operator; stored without NUL.
    pub error: String,
    /// Tries before it was set aside.
    pub attempts: u32,
}

/// The dead letters of both ends.
pub trait DeadLetterStore {
    /// Sets messages aside, in the transaction that takes them from where they were.
    fn bury(
        &self,
        connection: &mut ConnectionOf<Self>,
        letters: &[NewDeadLetter],
    ) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;

    /// How many dead letters there are of one origin.
    fn dead_letters(
        &self,
        connection: &mut ConnectionOf<Self>,
        origin: &Origin,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send
    where
        Self: Store;
}
