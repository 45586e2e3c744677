use std::future::Future;
use std::time::Duration;

use time::OffsetDateTime;

use super::database::ConnectionOf;
use super::{Fence, Store, StoreError};
use crate::message::{Envelope, Slot};

/// When a scheduled message is due, by the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// So long after it is written.
    After(Duration),
    /// At this time; one that has passed is due at once.
    At(OffsetDateTime),
}

/// A message that is to be enqueued later.
#[derive(Clone, Debug)]
pub struct NewScheduled {
    /// The message.
    pub envelope: Envelope,
    /// When.
    pub due: Due,
}

/// Messages that are not due yet (`scheduled`). Writing and cancelling them are
/// [`super::Database::insert_scheduled`] and [`super::Database::cancel_scheduled`], on the
/// application's own connection.
pub trait ScheduleStore {
    /// Moves messages of these lanes that are due to the end of the outbox, at most `limit`, by
    /// their time and then by the order in which they were scheduled; returns how many. Those of a
    /// lane whose fence is not among `fences` or is stale stay where they are.
    fn enqueue_due(
        &self,
        connection: &mut ConnectionOf<Self>,
        fences: &[Fence],
        lanes: &[Slot],
        limit: usize,
    ) -> impl Future<Output = Result<usize, StoreError>> + Send
    where
        Self: Store;

    /// How long until the next message of these lanes is due, zero if one is; `None` if none is
    /// scheduled.
    fn next_scheduled(
        &self,
        connection: &mut ConnectionOf<Self>,
        lanes: &[Slot],
    ) -> impl Future<Output = Result<Option<Duration>, StoreError>> + Send
    where
        Self: Store;

    /// How many messages are scheduled, in all lanes.
    fn scheduled(
        &self,
        connection: &mut ConnectionOf<Self>,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send
    where
        Self: Store;
}
