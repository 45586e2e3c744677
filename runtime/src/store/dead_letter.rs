use std::fmt;
use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use time::OffsetDateTime;

use super::database::ConnectionOf;
use super::{Store, StoreError};
use crate::message::{RawMessage, Slot};

/// At which end a message was set aside.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// On its way from the outbox to the broker.
    Dispatch,
    /// At this consumer.
    Consumer(String),
}

/// Which dead letter: the number that the database gave it, unique, with gaps, in the order in
/// which letters were first set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LetterId(pub i64);

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What has become of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LetterState {
    /// Set aside, until an operator acts.
    Dead,
    /// On its way again: in the retry table, or in the outbox.
    Replaying,
    /// A replay got through.
    Replayed,
    /// Dropped, by an operator or by a policy.
    Discarded,
}

impl LetterState {
    /// The word in the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Replaying => "replaying",
            Self::Replayed => "replayed",
            Self::Discarded => "discarded",
        }
    }

    /// The state of a word in the table.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        [Self::Dead, Self::Replaying, Self::Replayed, Self::Discarded]
            .into_iter()
            .find(|state| state.as_str() == word)
    }
}

/// A message to set aside.
#[derive(Clone, Debug)]
pub struct NewDeadLetter {
    /// Where.
    pub origin: Origin,
    /// The message as it was stored or received, its payload byte for byte.
    pub message: RawMessage,
    /// The error's kind, one word of a closed list ([`crate::dead_letter::reason`]).
    pub reason: &'static str,
    /// The error chain, for the operator; stored without NUL, cut at 64 KiB.
    pub error: String,
    /// The error without what differs between two occurrences ([`crate::dead_letter::fingerprint()`]).
    pub fingerprint: String,
    /// Tries before it was set aside.
    pub attempts: u32,
    /// The letter that it was already, if this was a replay: that one is written anew.
    pub again: Option<LetterId>,
    /// Whether its key waits for what becomes of it; only for a message with a key, whose place the
    /// caller keeps in the same transaction ([`super::RetryStore::park_held`], [`super::NewHold::parked`],
    /// [`super::OutboxStore::park`]).
    pub parked: bool,
    /// Whether it is dropped at once, by policy, and only on record here.
    pub discarded: bool,
    /// Where its retries are found; `None` for a message that has no slot.
    pub slot: Option<Slot>,
    /// When it failed first, by the database's clock; now, if `None`.
    pub first_failed_at: Option<OffsetDateTime>,
}

/// A dead letter as it stands in the table.
#[derive(Clone, Debug)]
pub struct DeadLetter {
    /// Which one.
    pub id: LetterId,
    /// At which end it was set aside.
    pub origin: Origin,
    /// The message; its payload, version and content type are those of the current revision.
    pub message: RawMessage,
    /// The error's kind.
    pub reason: String,
    /// The error chain.
    pub error: String,
    /// The error without what differs between two occurrences.
    pub fingerprint: String,
    /// Tries since it was enqueued or last replayed.
    pub attempts: u32,
    /// How often it was replayed.
    pub replays: u32,
    /// The current revision; 0 is the message as it was set aside.
    pub revision: u32,
    /// What has become of it.
    pub state: LetterState,
    /// Whether its key waits for it.
    pub parked: bool,
    /// Where its retries are found.
    pub slot: Option<Slot>,
    /// When it failed first.
    pub first_failed_at: Option<OffsetDateTime>,
    /// When it was set aside, last.
    pub dead_at: OffsetDateTime,
    /// When it was replayed or discarded.
    pub ended_at: Option<OffsetDateTime>,
    /// How many messages of its key wait behind it.
    pub successors: u64,
}

/// A message that waits behind a parked letter, at either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    /// Its message id, as it is written in the table.
    pub message_id: String,
    /// Its message type.
    pub message_type: String,
    /// Its payload's size, in bytes.
    pub payload_bytes: u64,
    /// Tries so far: 0 for one that only waits.
    pub attempts: u32,
    /// How long it has waited where it is, by the database's clock.
    pub waiting_for: Duration,
}

/// Which dead letters; every part that is given must hold.
#[derive(Clone, Debug, Default)]
pub struct LetterFilter {
    /// Only these; all if empty.
    pub ids: Vec<LetterId>,
    /// Only of this end.
    pub origin: Option<Origin>,
    /// Only this message type.
    pub message_type: Option<String>,
    /// Only this ordering key.
    pub key: Option<String>,
    /// Only this message id.
    pub message_id: Option<String>,
    /// Only this kind of error.
    pub reason: Option<String>,
    /// Only this fingerprint.
    pub fingerprint: Option<String>,
    /// Only errors that contain this text, as it is written (no pattern).
    pub error_contains: Option<String>,
    /// Only those set aside at this time or later.
    pub dead_from: Option<OffsetDateTime>,
    /// Only those set aside before this time.
    pub dead_before: Option<OffsetDateTime>,
    /// Only parked ones, or only others.
    pub parked: Option<bool>,
    /// Only in these states; dead ones if empty.
    pub states: Vec<LetterState>,
}

/// Dead letters that are alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LetterGroup {
    /// At which end.
    pub origin: Origin,
    /// Their message type, if they have one.
    pub message_type: Option<String>,
    /// The error's kind.
    pub reason: String,
    /// The error's fingerprint.
    pub fingerprint: String,
    /// How many there are.
    pub letters: u64,
    /// How many keys wait for one of them.
    pub keys_parked: u64,
    /// How many messages wait behind them.
    pub successors: u64,
    /// When the first of them was set aside.
    pub oldest: OffsetDateTime,
    /// When the last of them was set aside.
    pub newest: OffsetDateTime,
}

/// What is to become of letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterChange {
    /// `Dead` to `Replaying`; counts the replay and begins its attempts anew.
    Replay,
    /// `Dead` to `Discarded`, no longer parked.
    Discard,
    /// `Discarded` to `Dead`.
    Restore,
    /// `Dead` and parked to dead only: its key goes on without it.
    Skip,
    /// `Replaying` to `Dead`; parked, if it was.
    Recall,
}

/// An operator's version of a letter's message.
#[derive(Clone, Debug)]
pub struct NewRevision {
    /// The payload.
    pub payload: Bytes,
    /// The schema's version.
    pub version: Option<i64>,
    /// The payload's content type.
    pub content_type: Option<String>,
    /// Who made it.
    pub who: String,
    /// Why.
    pub reason: String,
}

/// A revision as it stands in the table; number 0 is the message as it was set aside.
#[derive(Clone, Debug)]
pub struct Revision {
    /// Its number.
    pub number: u32,
    /// The payload.
    pub payload: Bytes,
    /// The schema's version.
    pub version: Option<i64>,
    /// The payload's content type.
    pub content_type: Option<String>,
    /// Who made it; empty for number 0.
    pub who: String,
    /// Why; empty for number 0.
    pub reason: String,
    /// When; when the letter was set aside first, for number 0.
    pub revised_at: OffsetDateTime,
}

/// The dead letters of both ends.
pub trait DeadLetterStore {
    /// Sets messages aside, in the transaction that takes them from where they were; returns their
    /// letters, in the order given. One that was a letter already becomes `Dead` again with the new
    /// error, attempts and time; its message, revision, first failure and replays stay.
    fn bury(
        &self,
        connection: &mut ConnectionOf<Self>,
        letters: &[NewDeadLetter],
    ) -> impl Future<Output = Result<Vec<LetterId>, StoreError>> + Send
    where
        Self: Store;

    /// How many letters of one origin are dead.
    fn dead_letters(
        &self,
        connection: &mut ConnectionOf<Self>,
        origin: &Origin,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send
    where
        Self: Store;

    /// The consumers that have letters, in whatever state, in the order of their names; as many
    /// steps as there are names, however many letters.
    fn dead_consumers(
        &self,
        connection: &mut ConnectionOf<Self>,
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send
    where
        Self: Store;

    /// The letters of a selection after a given one, in the order of their ids, at most `limit`.
    fn letters(
        &self,
        connection: &mut ConnectionOf<Self>,
        filter: &LetterFilter,
        after: Option<LetterId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<DeadLetter>, StoreError>> + Send
    where
        Self: Store;

    /// The first of the messages that wait behind a parked letter, in order, at most `limit`; none
    /// behind one that is not parked. [`DeadLetter::successors`] counts all of them.
    fn successors(
        &self,
        connection: &mut ConnectionOf<Self>,
        letter: LetterId,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Successor>, StoreError>> + Send
    where
        Self: Store;

    /// The letters of a selection by origin, type, reason and fingerprint, largest groups first.
    fn letter_groups(
        &self,
        connection: &mut ConnectionOf<Self>,
        filter: &LetterFilter,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<LetterGroup>, StoreError>> + Send
    where
        Self: Store;

    /// Reads letters and keeps others from acting upon them until the transaction ends; in the
    /// order of their ids, without those that do not exist.
    fn lock_letters(
        &self,
        connection: &mut ConnectionOf<Self>,
        letters: &[LetterId],
    ) -> impl Future<Output = Result<Vec<DeadLetter>, StoreError>> + Send
    where
        Self: Store;

    /// Changes letters that are in the state that the change begins with; returns those.
    fn change_letters(
        &self,
        connection: &mut ConnectionOf<Self>,
        letters: &[LetterId],
        change: LetterChange,
    ) -> impl Future<Output = Result<Vec<LetterId>, StoreError>> + Send
    where
        Self: Store;

    /// Adds a revision to a dead letter and makes it the current one; returns its number. `None` if
    /// there is no such letter or it is not `Dead`.
    fn revise(
        &self,
        connection: &mut ConnectionOf<Self>,
        letter: LetterId,
        revision: &NewRevision,
    ) -> impl Future<Output = Result<Option<u32>, StoreError>> + Send
    where
        Self: Store;

    /// A letter's revisions, number 0 first.
    fn revisions(
        &self,
        connection: &mut ConnectionOf<Self>,
        letter: LetterId,
    ) -> impl Future<Output = Result<Vec<Revision>, StoreError>> + Send
    where
        Self: Store;
}
