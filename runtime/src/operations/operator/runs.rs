use super::operator::{Deed, PAGE_MAX, check_reason};
use super::{Operator, OperatorError};
use crate::store::{Database, LetterFilter, NewReplayRun, ReplayRun, ReplayStore, RunId, RunState};

/// Highest rate cap, in letters a second.
pub const RATE_MAX: u32 = 100_000;

/// How a replay run is to go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunOrder {
    /// Letters a second, at most: 1 to [`RATE_MAX`]; as fast as it goes if `None`. Kept by the
    /// database's clock, over all processes.
    pub rate: Option<u32>,
    /// Stops when so many of its letters have died again, at least 1; never if `None`. Never more
    /// than so many are on their way at once, so no more than so many can die before it stops.
    pub failures_max: Option<u32>,
}

impl<D: Database> Operator<D> {
    /// Begins a replay run of the dead letters of a selection: first those that keep their key's
    /// place, the head of each key before the rest of it, then the others in the order in which they
    /// were set aside. The selection is frozen: what dies later is not in it. A letter whose key
    /// waits for one that the run does not move is left out.
    /// The replayer of a running process carries it out, one process at a time; whatever crashes,
    /// it goes on where it was. Returns it and how many letters it has.
    ///
    /// Ask [`Operator::dry_run`] first.
    ///
    /// # Errors
    /// When no dead letter is in the selection, or the order is out of its limits.
    pub async fn begin_run(
        &self,
        filter: &LetterFilter,
        order: RunOrder,
        reason: &str,
    ) -> Result<(RunId, u64), OperatorError> {
        check_reason(reason)?;
        filter.check()?;
        if order.rate.is_some_and(|rate| rate == 0 || rate > RATE_MAX) {
            let problem = format!("it must be 1 to {RATE_MAX} letters a second");
            return Err(OperatorError::argument("rate", problem));
        }
        if order
            .failures_max
            .is_some_and(|most| most == 0 || i32::try_from(most).is_err())
        {
            let problem = format!("it must be 1 to {}", i32::MAX);
            return Err(OperatorError::argument("failures_max", problem));
        }
        let new = NewReplayRun {
            who: self.who.clone(),
            reason: reason.to_owned(),
            selection: filter.in_words(),
            rate: order.rate,
            failures_max: order.failures_max,
        };
        let begun = self
            .transact(async |connection| {
                let (run, letters) = self.store.begin_run(connection, filter, &new).await?;
                if letters == 0 {
                    return Err(OperatorError::NothingSelected);
                }
                let deed = Deed {
                    action: "begin-run",
                    reason,
                    letter: None,
                    run: Some(run),
                    details: format!("{letters} letters: {}", new.selection),
                };
                self.write_down(connection, deed).await?;
                Ok((run, letters))
            })
            .await?;
        self.wake_replayer();
        Ok(begun)
    }

    /// The newest runs first, at most `limit` (and [`PAGE_MAX`]), with their counts as they are now.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn runs(&self, limit: usize) -> Result<Vec<ReplayRun>, OperatorError> {
        self.read_runs(None, limit.min(PAGE_MAX)).await
    }

    /// A run, with its counts as they are now.
    ///
    /// # Errors
    /// When there is no such run, or the database does not answer.
    pub async fn run(&self, run: RunId) -> Result<ReplayRun, OperatorError> {
        let mut found = self.read_runs(Some(run), 1).await?;
        found.pop().ok_or(OperatorError::NoSuchRun(run))
    }

    /// Pauses a run; what is on its way stays so.
    ///
    /// # Errors
    /// When there is no such run, or it does not run.
    pub async fn pause(&self, run: RunId, reason: &str) -> Result<(), OperatorError> {
        let from = [RunState::Running];
        self.change_run("pause", run, &from, RunState::Paused, "running", reason)
            .await
    }

    /// Lets a run go on that was paused, or has stopped by itself: it then stops anew when as many
    /// of its letters have died again as it allows.
    ///
    /// # Errors
    /// When there is no such run, or it is neither paused nor stopped.
    pub async fn resume(&self, run: RunId, reason: &str) -> Result<(), OperatorError> {
        let from = [RunState::Paused, RunState::Stopped];
        let needed = "paused or stopped";
        self.change_run("resume", run, &from, RunState::Running, needed, reason)
            .await?;
        self.wake_replayer();
        Ok(())
    }

    /// Ends a run for good: what waits in it stays dead, what is on its way stays so.
    ///
    /// # Errors
    /// When there is no such run, or it has ended.
    pub async fn cancel(&self, run: RunId, reason: &str) -> Result<(), OperatorError> {
        let from = [RunState::Running, RunState::Paused, RunState::Stopped];
        let needed = "running, paused or stopped";
        self.change_run("cancel", run, &from, RunState::Cancelled, needed, reason)
            .await
    }

    async fn change_run(
        &self,
        action: &'static str,
        run: RunId,
        from: &[RunState],
        to: RunState,
        needed: &'static str,
        reason: &str,
    ) -> Result<(), OperatorError> {
        check_reason(reason)?;
        self.transact(async |connection| {
            if !self.store.change_run(connection, run, from, to).await? {
                let found = self.store.runs(connection, Some(run), 1).await?.pop();
                let state = found.ok_or(OperatorError::NoSuchRun(run))?.state;
                return Err(OperatorError::RunState { run, state, needed });
            }
            let deed = Deed {
                action,
                reason,
                letter: None,
                run: Some(run),
                details: String::new(),
            };
            self.write_down(connection, deed).await
        })
        .await
    }

    /// Reads runs as they are now: what has become of letters that were on their way is written
    /// down by steps only, and between steps looked at here, without leaving a trace.
    async fn read_runs(
        &self,
        only: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<ReplayRun>, OperatorError> {
        let store = &self.store;
        self.read(async |connection| {
            let mut found = store.runs(connection, only, limit).await?;
            for run in found.iter_mut().filter(|run| run.counts.replaying > 0) {
                let became = store.unsettled(connection, run.id).await?;
                let counts = &mut run.counts;
                let settled = became.replayed + became.failed + became.left;
                // A step may have written some of it down between the two statements.
                counts.replaying = counts.replaying.saturating_sub(settled);
                counts.replayed += became.replayed;
                counts.failed += became.failed;
                counts.left += became.left;
            }
            Ok(found)
        })
        .await
    }

    fn wake_replayer(&self) {
        if let Some(wiring) = &self.wiring {
            wiring.begun.call();
        }
    }
}
