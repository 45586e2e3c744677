use super::call::undo;
use super::disturbance::{Interruption, Trouble, patiently};
use super::partition::Partition;
use crate::message::OrderingKey;
use crate::outbox::Context;
use crate::store::{Database, Fence, HeldRow, RetryStore, Store, StoreError, Tx};
use crate::supervision::{crash_point, error_chain};
use crate::telemetry::Processed;

/// What became of messages of one key that were run together.
enum Together {
    /// All are through.
    Through,
    /// The one with this index has failed; nothing has changed.
    Failed(usize),
    /// Some are gone, or the partition belongs to somebody else; nothing has changed.
    Lost,
}

impl<D: Database> Partition<D> {
    /// Runs what waited behind a key's head that is through, in order, a batch of it in one
    /// transaction. If one fails, those before it are run without it; it is then the first of its
    /// key and due, and is tried for itself like any other.
    pub(super) async fn run_successors(
        &self,
        fence: &Fence,
        key: &OrderingKey,
    ) -> Result<(), Interruption> {
        let mut rows = self.claim_successors(fence, key).await?;
        // One alone is due now: it needs no transaction of another kind.
        while rows.len() > 1 {
            match self.run_together(fence, &rows).await? {
                Together::Through | Together::Lost => return Ok(()),
                Together::Failed(index) => rows.truncate(index),
            }
        }
        Ok(())
    }

    /// The first messages of a key that nobody has tried yet, claimed for this process; up to the
    /// first one that must be run alone, is a dead letter's place, or has no handler.
    async fn claim_successors(
        &self,
        fence: &Fence,
        key: &OrderingKey,
    ) -> Result<Vec<HeldRow>, StoreError> {
        let consumer = &self.queue.consumer;
        let mut session = self.store.begin().await?;
        let mut rows = self
            .store
            .held_of_key(&mut session, consumer, key, self.batch)
            .await?;
        let is_plain = |row: &HeldRow| {
            let handling = self.handlers.get(row.envelope.message_type.as_str());
            !row.parked && row.attempts == 0 && handling.is_some()
        };
        let plain = rows.iter().take_while(|row| is_plain(row)).count();
        rows.truncate(plain);
        if rows.len() > 1 {
            let positions: Vec<i64> = rows.iter().map(|row| row.position).collect();
            let claims = self
                .store
                .claim(&mut session, consumer, fence, &positions, self.member)
                .await?;
            let is_ours = |row: &HeldRow| {
                let claim = claims.iter().find(|claim| claim.position == row.position);
                claim.is_some_and(|claim| !claim.abandoned)
            };
            let ours = rows.iter().take_while(|row| is_ours(row)).count();
            rows.truncate(ours);
        }
        session.commit().await?;
        Ok(rows)
    }

    async fn run_together(
        &self,
        fence: &Fence,
        rows: &[HeldRow],
    ) -> Result<Together, Interruption> {
        // Of a failure that is nobody's in particular half of them may be free.
        let mut failed = rows.len() / 2;
        let run = patiently::<D, _>(async || {
            failed = rows.len() / 2;
            self.run_once(fence, rows, &mut failed).await
        })
        .await?;
        match run {
            Ok(together) => Ok(together),
            Err(error) => {
                tracing::debug!(
                    consumer = %self.queue.consumer,
                    error = %error_chain(&error),
                    index = failed,
                    "successors that were run together failed; those before are run again"
                );
                Ok(Together::Failed(failed))
            }
        }
    }

    /// Runs messages in one transaction that takes them out of the table; an error has undone it,
    /// and `failed` says whose it is if it is a handler's.
    async fn run_once(
        &self,
        fence: &Fence,
        rows: &[HeldRow],
        failed: &mut usize,
    ) -> Result<Together, Trouble> {
        let positions: Vec<i64> = rows.iter().map(|row| row.position).collect();
        let mut session = self.store.begin().await?;
        let released = self
            .store
            .release(&mut session, &self.queue.consumer, fence, &positions)
            .await?;
        if released.len() < rows.len() {
            session.rollback().await;
            return Ok(Together::Lost);
        }
        let mut processed = Processed::default();
        let mut tx = Tx::new(&mut *session, &self.outbox, Context::default());
        for (index, row) in rows.iter().enumerate() {
            let Some(handling) = self.handlers.get(row.envelope.message_type.as_str()) else {
                continue;
            };
            match self.call(&mut tx, handling, &row.envelope, 1).await {
                Ok(process) => processed.push(process),
                Err(error) => {
                    *failed = index;
                    undo::<D>(session, &error).await;
                    return Err(Trouble::Handler(error));
                }
            }
        }
        let enqueued = tx.flush().await?;
        session.commit().await?;
        processed.committed();
        crash_point!("retry.committed_together");
        if enqueued > 0 {
            self.enqueued.call();
        }
        self.counters.add_handled(rows.len() as u64, 0, 0, 0);
        Ok(Together::Through)
    }
}
