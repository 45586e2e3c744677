use std::time::Duration;

use super::HandleError;
use super::batch::{
    CONTENTION_BACKOFF, Called, DISTURBANCES_MAX, Interruption, is_disturbance, is_outage,
    no_handler,
};
use super::partition::Partition;
use crate::outbox::Context;
use crate::store::{
    Database, DeadLetterStore, Fence, HeldRow, RetryStore, Store, StoreError, StoreErrorKind, Tx,
};
use crate::supervision::{crash_point, error_chain};
use crate::telemetry::Processed;

/// How many messages of the retry table are looked at together.
const DUE_BATCH: usize = 100;

/// What became of the messages that were due.
pub(super) enum DueRun {
    /// All are through or wait again; the next is due after this long, if there is one.
    Done(Option<Duration>),
    /// The partition belongs to somebody else.
    LeaseLost,
}

/// What became of one message of the retry table.
enum Tried {
    /// Out of the table: handled, or set aside.
    Through,
    /// In the table still, with another due time.
    Postponed,
    /// Gone, or no longer ours.
    Lost,
}

/// Why a message of the retry table did not get through.
enum TryError {
    Store(StoreError),
    Handler(HandleError),
    NoHandler,
}

impl From<StoreError> for TryError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl<D: Database> Partition<D> {
    /// Tries everything in the retry table that is due, each message in its own transaction; a head
    /// that gets through makes its successor due at once. Stops between two messages when `go_on`
    /// says so.
    pub(super) async fn run_due(
        &self,
        fence: &Fence,
        go_on: impl Fn() -> bool,
    ) -> Result<DueRun, Interruption> {
        let (consumer, slots) = (&self.queue.consumer, self.queue.slots());
        loop {
            let mut session = self.store.begin().await?;
            let due = self
                .store
                .due(&mut session, consumer, slots.clone(), DUE_BATCH)
                .await?;
            if due.is_empty() {
                let next = self.store.next_retry(&mut session, consumer, slots).await?;
                session.commit().await?;
                return Ok(DueRun::Done(next));
            }
            session.commit().await?;
            let mut lost = 0;
            for row in &due {
                if !go_on() {
                    return Ok(DueRun::Done(Some(Duration::ZERO)));
                }
                lost += usize::from(matches!(self.try_again(fence, row).await?, Tried::Lost));
            }
            if lost == due.len() {
                return Ok(DueRun::LeaseLost);
            }
        }
    }

    /// Tries one message; again, a bounded number of times, while the database gets in the way:
    /// that is nobody's attempt.
    async fn try_again(&self, fence: &Fence, row: &HeldRow) -> Result<Tried, Interruption> {
        let attempt = row.attempts.saturating_add(1);
        let mut tries = 0;
        loop {
            let error = match self.try_once(fence, row, attempt).await {
                Ok(tried) => return Ok(tried),
                Err(error) => error,
            };
            let disturbed = match &error {
                TryError::Handler(error) => is_disturbance::<D>(error),
                TryError::Store(error) => error.kind() == StoreErrorKind::Contention,
                TryError::NoHandler => false,
            };
            if disturbed && tries < DISTURBANCES_MAX {
                tries += 1;
                tokio::time::sleep(CONTENTION_BACKOFF.delay(tries)).await;
                continue;
            }
            let text = match error {
                TryError::Store(error) if is_outage(error.kind()) => {
                    return Err(Interruption::Database(error));
                }
                // What the handler wrote was refused at the end, by a deferred constraint for
                // example: that is its failure.
                TryError::Store(error) => error_chain(&error),
                TryError::Handler(error) => error_chain(&error),
                TryError::NoHandler => no_handler(&row.envelope),
            };
            return self.postpone(fence, row, attempt, &text).await;
        }
    }

    /// Tries one message, in one transaction that takes it out of the table; an error has rolled it
    /// back.
    async fn try_once(
        &self,
        fence: &Fence,
        row: &HeldRow,
        attempt: u32,
    ) -> Result<Tried, TryError> {
        let mut session = self.store.begin().await?;
        let consumer = &self.queue.consumer;
        if self
            .store
            .release(&mut session, consumer, fence, &[row.position])
            .await?
            .is_empty()
        {
            session.rollback().await;
            return Ok(Tried::Lost);
        }
        let mut tx = Tx::new(&mut *session, &self.outbox, Context::default());
        let (reason, text) = match self.call_handler(&mut tx, &row.envelope, attempt).await {
            Ok(Called::Handled(process)) => {
                let mut processed = Processed::default();
                processed.push(process);
                let enqueued = tx.flush().await?;
                session.commit().await?;
                processed.committed();
                crash_point!("retry.committed");
                if enqueued > 0 {
                    self.enqueued.call();
                }
                self.counters.add_handled(1, 0, 0, 0);
                return Ok(Tried::Through);
            }
            Ok(Called::NoHandler) if row.held_for >= self.unknown_type_grace => {
                ("unknown_type", no_handler(&row.envelope))
            }
            Err(HandleError::Decode(error)) => ("undecodable", error_chain(&error)),
            Ok(Called::NoHandler) => {
                session.rollback().await;
                return Err(TryError::NoHandler);
            }
            Err(error) => {
                session.rollback().await;
                return Err(TryError::Handler(error));
            }
        };
        let letter = self.letter(row.envelope.clone().into(), reason, text, attempt);
        self.store.bury(&mut session, &[letter]).await?;
        session.commit().await?;
        self.counters.add_handled(0, 0, 0, 1);
        Ok(Tried::Through)
    }

    async fn postpone(
        &self,
        fence: &Fence,
        row: &HeldRow,
        attempt: u32,
        error: &str,
    ) -> Result<Tried, Interruption> {
        tracing::warn!(
            consumer = %self.queue.consumer,
            message_id = %row.envelope.id,
            message_type = %row.envelope.message_type,
            attempt,
            error,
            "a handler failed again"
        );
        let delay = self.backoff.delay(attempt);
        let consumer = &self.queue.consumer;
        let mut session = self.store.begin().await?;
        let changed = self
            .store
            .postpone(&mut session, consumer, fence, row.position, error, delay)
            .await?;
        session.commit().await?;
        Ok(if changed {
            Tried::Postponed
        } else {
            Tried::Lost
        })
    }
}
