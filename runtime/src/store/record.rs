use std::future::Future;

use time::OffsetDateTime;

use super::database::ConnectionOf;
use super::{LetterId, RunId, Store, StoreError};
use crate::message::MessageType;

/// Something that an operator does.
#[derive(Clone, Debug)]
pub struct NewAction {
    /// Who.
    pub who: String,
    /// What, one word (`replay`, `edit`, `skip`, `discard`, `restore`, `redispatch`, `pause`, ...).
    pub action: String,
    /// Why.
    pub reason: String,
    /// To which letter.
    pub letter: Option<LetterId>,
    /// To which replay run.
    pub run: Option<RunId>,
    /// What else there is to say, for people.
    pub details: String,
}

/// An action on record.
#[derive(Clone, Debug)]
pub struct Action {
    /// Its number, rising.
    pub position: i64,
    /// When it was done.
    pub done_at: OffsetDateTime,
    /// What was done.
    pub what: NewAction,
}

/// A message type that a consumer's processes said they handle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandledType {
    /// The consumer.
    pub consumer: String,
    /// The message type.
    pub message_type: String,
    /// The newest version of its schema that was announced.
    pub version: u32,
    /// When it was announced last.
    pub seen_at: OffsetDateTime,
}

/// The record: what operators did (`operator_action`), and which consumers handle what
/// (`handled_type`).
pub trait RecordStore {
    /// Adds an action, in the transaction that does it.
    fn record(
        &self,
        connection: &mut ConnectionOf<Self>,
        action: &NewAction,
    ) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;

    /// The newest actions first, at most `limit`; only those on one letter if it is given.
    fn actions(
        &self,
        connection: &mut ConnectionOf<Self>,
        letter: Option<LetterId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Action>, StoreError>> + Send
    where
        Self: Store;

    /// Writes down which message types a consumer handles, with their versions.
    fn announce(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        types: &[(MessageType, u32)],
    ) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;

    /// Everything that was announced, by consumer and type.
    fn handled_types(
        &self,
        connection: &mut ConnectionOf<Self>,
    ) -> impl Future<Output = Result<Vec<HandledType>, StoreError>> + Send
    where
        Self: Store;
}
