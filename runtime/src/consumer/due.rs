use std::time::{Duration, Instant};

use super::aside::Death;
use super::call::undo;
use super::disturbance::{Interruption, Trouble, is_outage, patiently};
use super::partition::Partition;
use super::verdict::Verdict;
use crate::dead_letter::{NewDeadLetter, Reason};
use crate::outbox::Context;
use crate::store::{
    Claim, Database, DeadLetterStore, Fence, HeldRow, Postponement, RetryStore, Session, Store,
    StoreError, Tx,
};
use crate::supervision::{crash_point, error_chain};
use crate::telemetry::Processed;

/// How many messages of the retry table are looked at together.
const DUE_BATCH: usize = 100;

/// What is due has this long at a time, and what it has begun then: deliveries that the broker has
/// sent already wait for their acknowledgement meanwhile.
const DUE_TURN: Duration = Duration::from_secs(30);

/// Until a partition asks again for the turn to run something alone.
const ALONE_PAUSE: Duration = Duration::from_millis(100);

/// Until what is due is looked at again if the database has refused a part of it.
const REFUSED_PAUSE: Duration = Duration::from_secs(2);

/// So many processes may die of a message, one after another and as far as is known, before it is
/// set aside. Not fewer: whoever loses its lease in the middle of a run looks dead, alive as it is.
const DEATHS_MAX: u32 = 5;

/// What became of the messages that were due.
pub(super) enum DueRun {
    /// All are through or wait again; the next is due after this long, if there is one.
    Done(Option<Duration>),
    /// The partition belongs to somebody else.
    LeaseLost,
}

/// What became of one message of the retry table.
pub(super) enum Tried {
    /// Out of the table, or its letter's place: handled, or set aside.
    Through,
    /// In the table still, with another due time.
    Postponed,
    /// Gone, or no longer ours.
    Lost,
}

/// What is due, claimed for this process, or left behind by one that may have died of it.
struct Claimed {
    ours: Vec<HeldRow>,
    abandoned: Vec<HeldRow>,
}

impl<D: Database> Partition<D> {
    /// Tries what is due in the retry table, at most a batch of it, each message in its own
    /// transaction; a head that gets through is followed by its successors. Stops between two
    /// messages when `go_on` says so, or its turn is over.
    ///
    /// What this process is about to run it claims first. What another one has claimed and left
    /// behind is run last, one a turn and only if `alone` allows it: should this process die, then
    /// only of that. First the one that fewest processes have died of.
    pub(super) async fn run_due(
        &self,
        fence: &Fence,
        alone: bool,
        go_on: impl Fn() -> bool,
    ) -> Result<DueRun, Interruption> {
        let end = Instant::now() + DUE_TURN;
        let (consumer, slots) = (&self.queue.consumer, self.queue.slots());
        // Mostly nothing is due; looking stops nobody who writes.
        let mut session = self.store.begin_read().await?;
        let next = self
            .store
            .next_retry(&mut session, consumer, slots.clone())
            .await?;
        session.commit().await?;
        if next.is_none_or(|next| !next.is_zero()) {
            return Ok(DueRun::Done(next));
        }
        let mut session = self.store.begin().await?;
        let due = self
            .store
            .due(&mut session, consumer, slots, DUE_BATCH)
            .await?;
        if due.is_empty() {
            session.commit().await?;
            return Ok(DueRun::Done(None));
        }
        let positions: Vec<i64> = due.iter().map(|row| row.position).collect();
        let claims = self
            .store
            .claim(&mut session, consumer, fence, &positions, self.member)
            .await?;
        session.commit().await?;
        crash_point!("retry.claimed");
        if claims.is_empty() {
            return Ok(DueRun::LeaseLost);
        }
        let Claimed { ours, abandoned } = sort(due, &claims);
        let mut next = Duration::ZERO;
        for row in &ours {
            if !go_on() || Instant::now() >= end {
                return Ok(DueRun::Done(Some(Duration::ZERO)));
            }
            let tried = self.unless_refused(row, self.try_again(fence, row).await)?;
            match (tried, &row.envelope.key) {
                (None, _) => next = REFUSED_PAUSE,
                (Some(Tried::Through), Some(key)) => self.run_successors(fence, key).await?,
                _ => {}
            }
        }
        if let Some(row) = abandoned.first().filter(|_| alone && go_on()) {
            // While another partition's turn lasts, this one goes on with other things.
            let Ok(_turn) = self.alone.try_lock() else {
                return Ok(DueRun::Done(Some(ALONE_PAUSE)));
            };
            let tried = self.unless_refused(row, self.try_alone(fence, row).await)?;
            if tried.is_none() {
                next = REFUSED_PAUSE;
            }
        }
        Ok(DueRun::Done(Some(next)))
    }

    /// `None` if the database is there and does not take what has become of a message: that stays as
    /// it was and is looked at again. It is this message's alone, and the others have their turn.
    fn unless_refused(
        &self,
        row: &HeldRow,
        tried: Result<Tried, Interruption>,
    ) -> Result<Option<Tried>, Interruption> {
        match tried {
            Err(Interruption::Database(error)) if !is_outage(error.kind()) => {
                tracing::error!(
                    consumer = %self.queue.consumer,
                    message_id = %row.envelope.id,
                    position = row.position,
                    error = &error as &dyn std::error::Error,
                    "the database refuses what has become of a message; it stays as it was"
                );
                Ok(None)
            }
            tried => tried.map(Some),
        }
    }

    /// Tries a message that a process left behind, after having counted that one's death. The caller
    /// has the process's turn for it.
    async fn try_alone(&self, fence: &Fence, row: &HeldRow) -> Result<Tried, Interruption> {
        let consumer = &self.queue.consumer;
        let mut session = self.store.begin().await?;
        let claim = self
            .store
            .claim_alone(&mut session, consumer, fence, row.position, self.member)
            .await?;
        session.commit().await?;
        crash_point!("retry.claimed_alone");
        match claim {
            None => Ok(Tried::Lost),
            Some(Claim { deaths, .. }) if deaths >= DEATHS_MAX => {
                let death = Death {
                    reason: Reason::KilledProcess,
                    error: format!("{deaths} processes died while they ran it"),
                    attempts: row.attempts,
                };
                Ok(self.set_aside(fence, row, death).await?)
            }
            Some(_) => self.try_again(fence, row).await,
        }
    }

    /// Tries one message, and says in the table what is to become of it if it fails.
    async fn try_again(&self, fence: &Fence, row: &HeldRow) -> Result<Tried, Interruption> {
        let attempt = row.attempts.saturating_add(1);
        let message_type = row.envelope.message_type.as_str();
        if self.handlers.get(message_type).is_none() {
            return self.without_handler(fence, row).await;
        }
        let tried = patiently::<D, _>(async || self.try_once(fence, row, attempt).await).await?;
        let error = match tried {
            Ok(tried) => return Ok(tried),
            Err(error) => error,
        };
        let verdict = Verdict::of(self.handlers.policy(message_type), attempt, &error);
        self.tell_failed(&row.envelope, attempt, &error, verdict);
        let error = error_chain(&error);
        match verdict {
            // Due again before anything else that waits for a time.
            Verdict::AtOnce => self.failed_again(fence, row, &error, Duration::ZERO).await,
            Verdict::Later(delay) => self.failed_again(fence, row, &error, delay).await,
            Verdict::DeadLetter(reason) => {
                let death = Death {
                    reason,
                    error,
                    attempts: attempt,
                };
                Ok(self.set_aside(fence, row, death).await?)
            }
        }
    }

    /// Tries one message, in one transaction that takes it out of the table; an error has undone
    /// it.
    async fn try_once(&self, fence: &Fence, row: &HeldRow, attempt: u32) -> Result<Tried, Trouble> {
        let Some(handling) = self.handlers.get(row.envelope.message_type.as_str()) else {
            return Ok(Tried::Lost);
        };
        let mut session = self.store.begin().await?;
        let consumer = &self.queue.consumer;
        let released = self
            .store
            .release(&mut session, consumer, fence, &[row.position])
            .await?;
        if released.is_empty() {
            session.rollback().await;
            return Ok(Tried::Lost);
        }
        let mut tx = Tx::new(&mut *session, &self.outbox, Context::default());
        let process = match self.call(&mut tx, handling, &row.envelope, attempt).await {
            Ok(process) => process,
            Err(error) => {
                undo::<D>(session, &error).await;
                return Err(Trouble::Handler(error));
            }
        };
        let mut processed = Processed::default();
        processed.push(process);
        let enqueued = tx.flush().await?;
        crash_point!("retry.handled");
        session.commit().await?;
        processed.committed();
        crash_point!("retry.committed");
        if enqueued > 0 {
            self.enqueued.call();
        }
        self.counters.add_handled(1, 0, 0, 0);
        Ok(Tried::Through)
    }

    /// Makes a message of the table a dead letter, in one transaction. If its key is to wait, its
    /// row stays as the letter's place; otherwise it goes, and the key's next one is due.
    pub(super) async fn set_aside(
        &self,
        fence: &Fence,
        row: &HeldRow,
        death: Death,
    ) -> Result<Tried, StoreError> {
        let parks = row.envelope.key.is_some() && self.parks(row.envelope.message_type.as_str());
        let letter = self.letter_of_row(row, parks, death);
        let mut session = self.store.begin().await?;
        let done = match parks {
            true => self.park_row(&mut session, fence, row, letter).await?,
            false => self.drop_row(&mut session, fence, row, letter).await?,
        };
        if !done {
            session.rollback().await;
            return Ok(Tried::Lost);
        }
        session.commit().await?;
        crash_point!("retry.set_aside");
        self.counters.add_handled(0, 0, 0, 1);
        Ok(Tried::Through)
    }

    /// Writes the letter and makes the row its place; `false` if the row is no longer ours.
    async fn park_row(
        &self,
        session: &mut Session<D>,
        fence: &Fence,
        row: &HeldRow,
        letter: NewDeadLetter,
    ) -> Result<bool, StoreError> {
        let (store, consumer) = (&self.store, &self.queue.consumer);
        let Some(letter) = store.bury(session, &[letter]).await?.pop() else {
            return Ok(false);
        };
        store
            .park_held(session, consumer, fence, row.position, letter)
            .await
    }

    /// Takes the row out and writes the letter; `false` if the row is no longer ours. In this order:
    /// taking out the row of a letter that is replayed ends the replay, and the letter is to be dead
    /// in the end.
    async fn drop_row(
        &self,
        session: &mut Session<D>,
        fence: &Fence,
        row: &HeldRow,
        letter: NewDeadLetter,
    ) -> Result<bool, StoreError> {
        let (store, consumer) = (&self.store, &self.queue.consumer);
        let released = store
            .release(session, consumer, fence, &[row.position])
            .await?;
        if released.is_empty() {
            return Ok(false);
        }
        store.bury(session, &[letter]).await?;
        Ok(true)
    }

    async fn failed_again(
        &self,
        fence: &Fence,
        row: &HeldRow,
        error: &str,
        delay: Duration,
    ) -> Result<Tried, Interruption> {
        let error = Some(error);
        self.postpone(fence, row, Postponement { error, delay })
            .await
    }

    pub(super) async fn postpone(
        &self,
        fence: &Fence,
        row: &HeldRow,
        postponement: Postponement<'_>,
    ) -> Result<Tried, Interruption> {
        let consumer = &self.queue.consumer;
        let mut session = self.store.begin().await?;
        let changed = self
            .store
            .postpone(&mut session, consumer, fence, row.position, postponement)
            .await?;
        session.commit().await?;
        Ok(if changed {
            Tried::Postponed
        } else {
            Tried::Lost
        })
    }
}

/// Rows by what their claims say; one without a claim is gone. Of the abandoned ones those come
/// first that fewest processes have died of: they are the likeliest to be innocent.
fn sort(due: Vec<HeldRow>, claims: &[Claim]) -> Claimed {
    let (mut ours, mut abandoned) = (Vec::new(), Vec::new());
    for row in due {
        match claims.iter().find(|claim| claim.position == row.position) {
            Some(claim) if claim.abandoned => abandoned.push((claim.deaths, row)),
            Some(_) => ours.push(row),
            None => {}
        }
    }
    abandoned.sort_by_key(|(deaths, _)| *deaths);
    let abandoned = abandoned.into_iter().map(|(_, row)| row).collect();
    Claimed { ours, abandoned }
}
