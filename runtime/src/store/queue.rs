use std::future::Future;
use std::ops::RangeInclusive;

use super::database::ConnectionOf;
use super::outbox::RowId;
use super::{Store, StoreError};
use crate::message::{Envelope, Malformed, MessageType};

/// A message in a consumer's queue on the database broker.
#[derive(Clone, Debug)]
pub struct QueueRow {
    /// The queue's order; unique, with gaps.
    pub position: i64,
    /// The message.
    pub message: Result<Envelope, Malformed>,
}

/// The database broker's queue tables: `subscription` (which consumer takes which message types)
/// and `queue` (one row per consumer and message). Routing and acknowledging are statements in the
/// transactions of others.
pub trait QueueStore {
    /// Records that a consumer takes these message types. What it took before it goes on taking: in a
    /// rolling deployment processes of two versions share a consumer, and each knows types that the
    /// other does not. A type that no version handles any more is taken out of `subscription` by hand.
    fn subscribe(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        types: &[MessageType],
    ) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;

    /// Copies outbox rows into the queue of each consumer that takes their type, in the order given
    /// (which is order per key). Returns the rows that at least one consumer takes; the others went
    /// nowhere.
    fn route(
        &self,
        connection: &mut ConnectionOf<Self>,
        rows: &[RowId],
    ) -> impl Future<Output = Result<Vec<RowId>, StoreError>> + Send
    where
        Self: Store;

    /// The first messages of a consumer's queue in these slots, at most `limit`, in order.
    fn queued(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        slots: RangeInclusive<u8>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<QueueRow>, StoreError>> + Send
    where
        Self: Store;

    /// Takes messages out of the queues; returns how many were there.
    fn unqueue(
        &self,
        connection: &mut ConnectionOf<Self>,
        positions: &[i64],
    ) -> impl Future<Output = Result<usize, StoreError>> + Send
    where
        Self: Store;

    /// How many messages a consumer's queue holds in these slots.
    fn queue_depth(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        slots: RangeInclusive<u8>,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send
    where
        Self: Store;
}
