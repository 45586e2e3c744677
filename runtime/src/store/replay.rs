use std::fmt;
use std::future::Future;
use std::time::Duration;

use time::OffsetDateTime;

use super::database::ConnectionOf;
use super::{LetterFilter, LetterId, Store, StoreError};

/// Which replay run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub i64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The state of a replay run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RunState {
    /// Goes on, step by step.
    Running,
    /// Paused by an operator; can be resumed.
    Paused,
    /// Stopped by itself, since as many of its letters have died again as it allows; can be
    /// resumed.
    Stopped,
    /// Ended by an operator; what was not replayed stays dead.
    Cancelled,
    /// Ended: every letter of it was replayed, has died again, or was left out.
    Finished,
}

impl RunState {
    /// The word in the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Cancelled => "cancelled",
            Self::Finished => "finished",
        }
    }

    /// The state of a word in the table.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        [
            Self::Running,
            Self::Paused,
            Self::Stopped,
            Self::Cancelled,
            Self::Finished,
        ]
        .into_iter()
        .find(|state| state.as_str() == word)
    }
}

/// A replay run to begin.
#[derive(Clone, Debug)]
pub struct NewReplayRun {
    /// Who.
    pub who: String,
    /// Why.
    pub reason: String,
    /// The selection in words, for whoever looks at it later.
    pub selection: String,
    /// Letters a second, at most; no cap if `None`.
    pub rate: Option<u32>,
    /// Stops when so many of its letters have died again; never if `None`.
    pub failures_max: Option<u32>,
}

/// A replay run as it stands in the table.
#[derive(Clone, Debug)]
pub struct ReplayRun {
    /// Which one.
    pub id: RunId,
    /// Its state.
    pub state: RunState,
    /// Who began it.
    pub who: String,
    /// Why.
    pub reason: String,
    /// The selection in words.
    pub selection: String,
    /// Letters a second, at most.
    pub rate: Option<u32>,
    /// Stops when so many of its letters have died again.
    pub failures_max: Option<u32>,
    /// When it began.
    pub created_at: OffsetDateTime,
    /// When it ended.
    pub ended_at: Option<OffsetDateTime>,
    /// How many of its letters are in which state.
    pub counts: RunCounts,
}

/// How many letters of a run are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Still to be replayed.
    pub waiting: u64,
    /// On their way.
    pub replaying: u64,
    /// Got through.
    pub replayed: u64,
    /// Died again.
    pub failed: u64,
    /// Left out: not dead any more when their turn came, no valid message, waiting for a letter that
    /// the run does not move, or recalled.
    pub left: u64,
}

/// Replay runs (`replay_run`) and their letters (`replay_item`).
pub trait ReplayStore {
    /// Begins a run of the dead letters of a selection, whatever states the filter names: first
    /// those that keep their key's place, in the order of their places, so of each key the head
    /// first; then the others by their ids. Returns it and how many letters it has. The selection is
    /// frozen: what dies later is not in it.
    fn begin_run(
        &self,
        connection: &mut ConnectionOf<Self>,
        filter: &LetterFilter,
        run: &NewReplayRun,
    ) -> impl Future<Output = Result<(RunId, u64), StoreError>> + Send
    where
        Self: Store;

    /// The newest runs first, at most `limit`; or one. The counts are those that were written down
    /// last, however many letters a run has.
    fn runs(
        &self,
        connection: &mut ConnectionOf<Self>,
        only: Option<RunId>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<ReplayRun>, StoreError>> + Send
    where
        Self: Store;

    /// Changes a run's state if it is in one of `from`; whether it was.
    fn change_run(
        &self,
        connection: &mut ConnectionOf<Self>,
        run: RunId,
        from: &[RunState],
        to: RunState,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send
    where
        Self: Store;

    /// A running run whose next step is due and that no other transaction is at, kept from others
    /// until this transaction ends.
    fn take_run(
        &self,
        connection: &mut ConnectionOf<Self>,
    ) -> impl Future<Output = Result<Option<ReplayRun>, StoreError>> + Send
    where
        Self: Store;

    /// Writes down what became of the run's letters that were on their way: replayed, failed.
    fn settle_run(
        &self,
        connection: &mut ConnectionOf<Self>,
        run: RunId,
    ) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;

    /// What [`ReplayStore::settle_run`] would write down, without writing it: how many of those on
    /// their way have been replayed, have failed, or are left.
    fn unsettled(
        &self,
        connection: &mut ConnectionOf<Self>,
        run: RunId,
    ) -> impl Future<Output = Result<RunCounts, StoreError>> + Send
    where
        Self: Store;

    /// The next waiting letters of a run, in its order, at most `limit`.
    fn next_letters(
        &self,
        connection: &mut ConnectionOf<Self>,
        run: RunId,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<LetterId>, StoreError>> + Send
    where
        Self: Store;

    /// The letters of a run that are on their way, in its order, as they were written down last.
    fn letters_on_their_way(
        &self,
        connection: &mut ConnectionOf<Self>,
        run: RunId,
    ) -> impl Future<Output = Result<Vec<LetterId>, StoreError>> + Send
    where
        Self: Store;

    /// Of these letters, whether they are on their way or still dead, those that nothing moves until
    /// an operator acts: their key's first message at their end is the place of another letter. Each
    /// with that letter.
    fn waiting_for(
        &self,
        connection: &mut ConnectionOf<Self>,
        letters: &[LetterId],
    ) -> impl Future<Output = Result<Vec<(LetterId, LetterId)>, StoreError>> + Send
    where
        Self: Store;

    /// Writes down which waiting letters are on their way now, and which were left out.
    fn mark_letters(
        &self,
        connection: &mut ConnectionOf<Self>,
        run: RunId,
        replaying: &[LetterId],
        left: &[LetterId],
    ) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;

    /// Writes down that a letter that was on its way was taken back: it is left out of the runs that
    /// sent it.
    fn leave_recalled(
        &self,
        connection: &mut ConnectionOf<Self>,
        letter: LetterId,
    ) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;

    /// Sets a run's next step to be due so long from now, by the database's clock.
    fn pace_run(
        &self,
        connection: &mut ConnectionOf<Self>,
        run: RunId,
        pause: Duration,
    ) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;

    /// How long until the next step of a running run is due, zero if one is; `None` if none runs.
    fn next_step(
        &self,
        connection: &mut ConnectionOf<Self>,
    ) -> impl Future<Output = Result<Option<Duration>, StoreError>> + Send
    where
        Self: Store;
}
