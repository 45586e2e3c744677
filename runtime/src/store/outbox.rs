use std::future::Future;
use std::time::Duration;

use time::OffsetDateTime;

use super::database::ConnectionOf;
use super::{Fence, LetterId, Recall, Store, StoreError};
use crate::message::{Envelope, Malformed, Slot};

/// Which row of the outbox: its lane and the number that the database gave it at insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RowId {
    /// The lane.
    pub slot: Slot,
    /// Insertion order within the outbox, unique, with gaps.
    pub position: i64,
}

/// A row that waits for dispatch.
#[derive(Clone, Debug)]
pub struct OutboxRow {
    /// Which row.
    pub id: RowId,
    /// How often its dispatch failed.
    pub attempts: u32,
    /// When it failed first.
    pub failed_at: Option<OffsetDateTime>,
    /// The dead letter that goes out again with it.
    pub letter: Option<LetterId>,
    /// The message; a row that plain SQL wrote may be malformed, and fails alone.
    pub message: Result<Envelope, Malformed>,
}

/// A row whose dispatch failed: what to write down.
#[derive(Clone, Debug)]
pub struct FailedRow {
    /// Which row.
    pub id: RowId,
    /// Why, for the operator; stored without NUL, cut at 8 KiB.
    pub error: String,
    /// How long the row, and its key's successors, wait from now by the database's clock.
    pub hold: Duration,
}

/// The outbox (`outbox`: what waits) and what left it (`dispatched`: kept until its retention
/// ends).
///
/// A row moves from the one table to the other when it is settled, so what is kept never slows what
/// waits.
pub trait OutboxStore {
    /// The rows of these lanes that can be dispatched now, at most `limit` of them, in insertion
    /// order within each lane.
    ///
    /// Left out are rows on hold, parked rows, and rows whose key has an earlier row on hold or parked. Selected by each
    /// row's own state: a row that commits late, with a lower position than rows already
    /// dispatched, is found like any other. `in_flight` are rows to leave out since they are in
    /// flight already.
    ///
    /// It may write: rows that wait in crowds are moved out of their lanes' way, some at each call.
    fn pending(
        &self,
        connection: &mut ConnectionOf<Self>,
        lanes: &[Slot],
        in_flight: &[RowId],
        limit: usize,
    ) -> impl Future<Output = Result<Vec<OutboxRow>, StoreError>> + Send
    where
        Self: Store;

    /// Moves confirmed rows to `dispatched`; returns the rows that moved. The dead letters that went
    /// out again with them become `Replayed`.
    ///
    /// A row does not move if its lane's fence is not among `fences` or is stale (the lease is
    /// lost), or if it is gone already: outcomes, not errors.
    fn mark_dispatched(
        &self,
        connection: &mut ConnectionOf<Self>,
        fences: &[Fence],
        rows: &[RowId],
    ) -> impl Future<Output = Result<Vec<RowId>, StoreError>> + Send
    where
        Self: Store;

    /// Counts a failed attempt of each row and puts it, and with it its key, on hold. Returns the
    /// rows that changed; fenced as [`OutboxStore::mark_dispatched`] is.
    fn mark_failed(
        &self,
        connection: &mut ConnectionOf<Self>,
        fences: &[Fence],
        rows: &[FailedRow],
    ) -> impl Future<Output = Result<Vec<RowId>, StoreError>> + Send
    where
        Self: Store;

    /// Takes rows out of the outbox without a trace; the caller has written their dead letters in
    /// the same transaction. Returns the rows that are gone; fenced as
    /// [`OutboxStore::mark_dispatched`] is.
    fn remove(
        &self,
        connection: &mut ConnectionOf<Self>,
        fences: &[Fence],
        rows: &[RowId],
    ) -> impl Future<Output = Result<Vec<RowId>, StoreError>> + Send
    where
        Self: Store;

    /// Makes rows the places of their dead letters: never due, without payload, their keys waiting
    /// behind them. Returns the rows that changed; fenced as [`OutboxStore::mark_dispatched`] is.
    fn park(
        &self,
        connection: &mut ConnectionOf<Self>,
        fences: &[Fence],
        rows: &[(RowId, LetterId)],
    ) -> impl Future<Output = Result<Vec<RowId>, StoreError>> + Send
    where
        Self: Store;

    /// Puts the message of a dead letter back: into its place if it kept one, with no attempts and
    /// not on hold; else at the end of the outbox. `false` if a row of this message id waits there
    /// already.
    fn readmit(
        &self,
        connection: &mut ConnectionOf<Self>,
        letter: LetterId,
        envelope: &Envelope,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send
    where
        Self: Store;

    /// Takes the place of a parked dead letter away: its key goes on. `false` if it kept none.
    fn unpark(
        &self,
        connection: &mut ConnectionOf<Self>,
        letter: LetterId,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send
    where
        Self: Store;

    /// Takes the row of a letter that is replayed back: with `place`, it keeps its key's place again;
    /// without, it goes. One that may be on its way to the broker just now stays: it could go out,
    /// and the owner of its lane is alive. Never waits for who is at the row; the caller has the
    /// letter locked and changes its state.
    fn recall(
        &self,
        connection: &mut ConnectionOf<Self>,
        letter: LetterId,
        place: bool,
    ) -> impl Future<Output = Result<Recall, StoreError>> + Send
    where
        Self: Store;

    /// Gives a slot to rows that plain SQL inserted without one (where the database cannot compute
    /// it itself). Returns how many.
    fn adopt(
        &self,
        connection: &mut ConnectionOf<Self>,
        limit: usize,
    ) -> impl Future<Output = Result<usize, StoreError>> + Send
    where
        Self: Store;

    /// How long until the first row on hold in these lanes may be tried again; `None` if none is on
    /// hold. Parked rows wait for an operator and do not count.
    fn next_due(
        &self,
        connection: &mut ConnectionOf<Self>,
        lanes: &[Slot],
    ) -> impl Future<Output = Result<Option<Duration>, StoreError>> + Send
    where
        Self: Store;

    /// How many rows wait, how many of them are on hold, and the age of the oldest.
    fn backlog(
        &self,
        connection: &mut ConnectionOf<Self>,
    ) -> impl Future<Output = Result<Backlog, StoreError>> + Send
    where
        Self: Store;
}

/// What waits in the outbox.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Rows that wait, those on hold among them.
    pub rows: u64,
    /// Rows whose last dispatch failed.
    pub held: u64,
    /// Keys that wait for a dead letter: parked rows, in none of the other counts.
    pub parked: u64,
    /// How long ago the oldest was enqueued, by the database's clock; zero without rows.
    pub oldest: Duration,
}
