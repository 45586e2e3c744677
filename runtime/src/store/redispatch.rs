use std::future::Future;

use time::OffsetDateTime;

use super::database::ConnectionOf;
use super::{Store, StoreError};

/// Which of the kept rows that were dispatched; every part that is given must hold.
#[derive(Clone, Debug)]
pub struct RedispatchFilter {
    /// Dispatched at this time or later.
    pub from: Option<OffsetDateTime>,
    /// Dispatched before this time: also what keeps a row from going out again and again.
    pub before: OffsetDateTime,
    /// Only this message type.
    pub message_type: Option<String>,
    /// Only this ordering key.
    pub key: Option<String>,
}

/// What a redispatch would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedispatchPreview {
    /// Rows that would go out again.
    pub rows: u64,
    /// Distinct ordering keys among them.
    pub keys: u64,
    /// Per consumer that has an inbox in this database and handles a type among them: how many of
    /// the rows it has not handled.
    pub lacking: Vec<(String, u64)>,
}

/// What one step of a redispatch did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RedispatchStep {
    /// Rows that left `dispatched`.
    pub rows: usize,
    /// Where the last of them was: the next step begins behind it. `None` without rows.
    pub last: Option<i64>,
}

/// Kept rows that go out again.
pub trait RedispatchStore {
    /// The database's clock: what a redispatch is cut off at.
    fn now(
        &self,
        connection: &mut ConnectionOf<Self>,
    ) -> impl Future<Output = Result<OffsetDateTime, StoreError>> + Send
    where
        Self: Store;

    /// Counts what a redispatch would do.
    fn preview_redispatch(
        &self,
        connection: &mut ConnectionOf<Self>,
        filter: &RedispatchFilter,
    ) -> impl Future<Output = Result<RedispatchPreview, StoreError>> + Send
    where
        Self: Store;

    /// Moves the first rows of a selection behind a position, at most `limit`, from `dispatched` to
    /// the end of the outbox, in the order in which they were enqueued, with their ids. A row whose
    /// id waits in the outbox already only leaves `dispatched`.
    ///
    /// A step that begins behind the one before does not walk again over what is not in the
    /// selection. What was dispatched before the cut-off, and committed only after a step was
    /// beyond it, is found by one that begins at the front (`None`).
    fn redispatch(
        &self,
        connection: &mut ConnectionOf<Self>,
        filter: &RedispatchFilter,
        after: Option<i64>,
        limit: usize,
    ) -> impl Future<Output = Result<RedispatchStep, StoreError>> + Send
    where
        Self: Store;
}
