use std::future::Future;
use std::ops::RangeInclusive;
use std::time::Duration;

use time::OffsetDateTime;

use super::database::ConnectionOf;
use super::{Fence, LetterId, MemberId, Store, StoreError};
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
    /// Only the place of this dead letter: never due (`delay` is `None`), stored without its
    /// payload; its key waits behind it.
    pub parked: Option<LetterId>,
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
    /// How long ago it was first found without a handler, since it was last tried, by the database's
    /// clock; `None` if it was not.
    pub unhandled_for: Option<Duration>,
    /// When it failed first.
    pub failed_at: Option<OffsetDateTime>,
    /// The dead letter that is replayed with it, or whose place it is.
    pub letter: Option<LetterId>,
    /// Whether it is only a dead letter's place.
    pub parked: bool,
}

/// Why a row of the retry table waits again, and how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Postponement<'e> {
    /// The error of its try, which counts. `None` if it was not tried, since nobody here has a
    /// handler for it; since when, the row says.
    pub error: Option<&'e str>,
    /// How long from now, by the database's clock.
    pub delay: Duration,
}

/// What [`RetryStore::claim`] says of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Which row.
    pub position: i64,
    /// Whether another process had claimed it and never said what became of it: it may have died
    /// of it.
    pub abandoned: bool,
    /// How many processes have died while they ran it, as far as is known; only
    /// [`RetryStore::claim_alone`] counts.
    pub deaths: u32,
}

/// What was found of a replayed message that is to be taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Recall {
    /// It was taken back.
    Back,
    /// A running process is at it; nothing was changed.
    Running,
    /// It is not there: somebody has deleted its row.
    Gone,
}

/// The retry table: per consumer, what failed and waits for its next try, and behind each such head
/// the successors of its key.
///
/// A message of a key is due when it is the first of its key here and its time has come; one
/// without a key when its time has come. Their inbox ids were written when they joined.
pub trait RetryStore {
    /// Adds deliveries, in the order given. One that is there already stays as it is: it came again
    /// after the inbox had forgotten it.
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

    /// Writes down, in a transaction of its own, that this process is about to run rows together;
    /// returns those that are there and still ours by the partition's fence. A claim ends when the
    /// row is released, postponed, parked or unclaimed; one that another process left behind means that it
    /// died, and such a row is to be run alone.
    fn claim(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        fence: &Fence,
        positions: &[i64],
        member: MemberId,
    ) -> impl Future<Output = Result<Vec<Claim>, StoreError>> + Send
    where
        Self: Store;

    /// As [`RetryStore::claim`] for a row that is run alone: a claim that another process left
    /// behind is counted as a death. `None` if the row is gone or the fence is stale.
    fn claim_alone(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        fence: &Fence,
        position: i64,
        member: MemberId,
    ) -> impl Future<Output = Result<Option<Claim>, StoreError>> + Send
    where
        Self: Store;

    /// Ends this member's claims on all rows in these slots: it gives the partition up, alive. Needs
    /// no fence: nobody else's claim changes.
    fn unclaim(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        slots: RangeInclusive<u8>,
        member: MemberId,
    ) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;

    /// Takes messages out of the table, at the beginning of the transaction that handles them; of
    /// each key the next one that is left becomes due at once, and dead letters that were replayed
    /// with them become `Replayed`. Returns those taken: one that is missing is gone, or the
    /// partition's fence is stale (then all are missing), and may not be handled.
    fn release(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        fence: &Fence,
        positions: &[i64],
    ) -> impl Future<Output = Result<Vec<i64>, StoreError>> + Send
    where
        Self: Store;

    /// Makes a row the place of its dead letter: never due, without payload, its key waiting behind
    /// it. `false` if it is gone or the fence is stale.
    fn park_held(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        fence: &Fence,
        position: i64,
        letter: LetterId,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send
    where
        Self: Store;

    /// Puts the message of a dead letter back, with no attempts: into its place if it kept one, due
    /// at once; else at the end of the table, due at once, or behind its key's head if the key is on
    /// hold. `false` if a row of this message id is there already. The inbox has its id since it was
    /// first received.
    fn readmit_held(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        letter: LetterId,
        slot: Slot,
        envelope: &Envelope,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send
    where
        Self: Store;

    /// Takes the place of a parked dead letter away; its key's next one becomes due at once.
    /// `false` if it kept none.
    fn unpark_held(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        letter: LetterId,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send
    where
        Self: Store;

    /// Takes the message of a letter that is replayed back: with `place`, its row keeps its key's
    /// place again; without, the row goes, and its key's next one becomes due at once. A row that a
    /// running process has claimed stays; a claim that a process left behind is none. Never waits
    /// for who is at the row; the caller has the letter locked and changes its state.
    fn recall_held(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        letter: LetterId,
        place: bool,
    ) -> impl Future<Output = Result<Recall, StoreError>> + Send
    where
        Self: Store;

    /// Sets the time of a row's next try, and ends the claim; the process outlived it, so deaths
    /// count anew. `false` if the row is gone or the fence is stale.
    fn postpone(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        fence: &Fence,
        position: i64,
        postponement: Postponement<'_>,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send
    where
        Self: Store;

    /// How many messages of a consumer are in the table (places of dead letters are none), and how
    /// many distinct keys are on hold, parked ones among them.
    fn held(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
    ) -> impl Future<Output = Result<(u64, u64), StoreError>> + Send
    where
        Self: Store;

    /// How many messages of one key are in the table; counts no further than `limit`.
    fn held_count(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        key: &OrderingKey,
        limit: usize,
    ) -> impl Future<Output = Result<usize, StoreError>> + Send
    where
        Self: Store;

    /// The messages of one key in the table, in order, at most `limit`; places of dead letters
    /// among them.
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
