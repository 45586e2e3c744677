use std::future::Future;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::database::ConnectionOf;
use super::{Fence, Store, StoreError};
use crate::message::{Envelope, OrderingKey, Slot};

/// A delivery that joins the retry table.
#[derive(Clone, Debug)]
pub struct NewHold {
    /// The message.
    pub envelope: Envelope,
    /// Under which slot it is found when it is due: its key's, where its successors look for it;
    /// without a key, any slot of the partition that puts it on hold.
    pub slot: Slot,
    /// Tries so far: 0 for a successor that only waits behind its key's head.
    pub attempts: u32,
    /// The last try's error; `None` for a successor.
    pub error: Option<String>,
    /// How long until it may be tried again, by the database's clock; `None` for a successor, which
    /// waits for its head.
    pub delay: Option<Duration>,
}

/// A message in the retry table that is due.
#[derive(Clone, Debug)]
pub struct HeldRow {
    /// The table's order, unique, with gaps.
    pub position: i64,
    /// The message.
    pub envelope: Envelope,
    /// Tries so far.
    pub attempts: u32,
    /// How long it has been in the table, by the database's clock.
    pub held_for: Duration,
}

/// The retry table: per consumer, what failed and waits for its next try, and behind each such head
/// the successors of its key.
///
/// A message of a key is due when it is the first of its key here and its time has come; one
/// without a key when its time has come. Their inbox ids were written when they joined.
pub trait RetryStore {
    /// Adds deliveries, in the order given.
    fn hold(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        holds: &[NewHold],
    ) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;

    /// The messages that are due in these slots, at most `limit`, oldest first, at most one of each
    /// key.
    fn due(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        slots: RangeInclusive<u8>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<HeldRow>, StoreError>> + Send
    where
        Self: Store;

    /// How long until the next message in these slots is due, zero if one is; `None` if none waits.
    fn next_retry(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        slots: RangeInclusive<u8>,
    ) -> impl Future<Output = Result<Option<Duration>, StoreError>> + Send
    where
        Self: Store;

    /// Takes a message out of the table, at the beginning of the transaction that handles it; its
    /// key's next one becomes due at once. `false` if it is gone or the partition's fence is stale:
    /// then nothing changed and nothing may be handled.
    fn release(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        fence: &Fence,
        position: i64,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send
    where
        Self: Store;

    /// Counts a failed try and sets the time of the next. `false` if the row is gone or the fence
    /// is stale.
    fn postpone(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        fence: &Fence,
        position: i64,
        error: &str,
        delay: Duration,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send
    where
        Self: Store;

    /// How many messages of a consumer are in the table, and how many distinct keys are on hold.
    fn held(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
    ) -> impl Future<Output = Result<(u64, u64), StoreError>> + Send
    where
        Self: Store;

    /// The messages of one key in the table, in order, at most `limit`: for operators and tests.
    fn held_of_key(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        key: &OrderingKey,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<HeldRow>, StoreError>> + Send
    where
        Self: Store;
}
