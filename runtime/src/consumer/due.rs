use std::time::Duration;

use super::HandleError;
use super::batch::{Called, Interruption, interruption, no_handler};
use super::partition::Partition;
use crate::outbox::Context;
use crate::store::{Database, DeadLetterStore, Fence, HeldRow, RetryStore, Store, Tx};
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

impl<D: Database> Partition<D> {
    /// Tries everything in the retry table that is due, each message in its own transaction; a head that gets through makes its successor due at
    /// once. Stops between two messages when `go_on` says so.
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

    async fn try_again(&self, fence: &Fence, row: &HeldRow) -> Result<Tried, Interruption> {
        let consumer = &self.queue.consumer;
        let mut session = self.store.begin().await?;
        if !self
            .store
            .release(&mut session, consumer, fence, row.position)
            .await?
        {
            session.rollback().await;
            return Ok(Tried::Lost);
        }
        let attempt = row.attempts.saturating_add(1);
        let mut tx = Tx::new(&mut *session, &self.outbox, Context::default());
        let error = match self.call_handler(&mut tx, &row.envelope, attempt).await {
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
            Ok(Called::NoHandler) if row.held_for < self.unknown_type_grace => {
                no_handler(&row.envelope)
            }
            Ok(Called::NoHandler) => {
                let text = no_handler(&row.envelope);
                let letter =
                    self.letter(row.envelope.clone().into(), "unknown_type", text, attempt);
                self.store.bury(&mut session, &[letter]).await?;
                session.commit().await?;
                return Ok(Tried::Through);
            }
            Err(HandleError::Decode(error)) => {
                let text = error_chain(&error);
                let letter = self.letter(row.envelope.clone().into(), "undecodable", text, attempt);
                self.store.bury(&mut session, &[letter]).await?;
                session.commit().await?;
                return Ok(Tried::Through);
            }
            Err(error) => {
                if let Some(interruption) = interruption::<D>(&error) {
                    session.rollback().await;
                    return Err(interruption);
                }
                error_chain(&error)
            }
        };
        session.rollback().await;
        self.postpone(fence, row, attempt, &error).await
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
