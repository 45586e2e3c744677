use std::collections::BTreeMap;

use crate::dead_letter::{NewDeadLetter, Origin};
use crate::message::{Envelope, Malformed, RawMessage, Slot};
use crate::retry::Backoff;
use crate::store::{
    Database, DeadLetterStore, FailedRow, Fence, OutboxRow, OutboxStore, RowId, Session, StoreError,
};

/// What became of claimed rows, to be written down in one transaction.
#[derive(Default)]
pub(super) struct Settlement {
    dispatched: Vec<RowId>,
    failed: Vec<FailedRow>,
    dead: Vec<(RowId, NewDeadLetter)>,
}

/// How many rows a settlement changed. Fewer than it named means that lanes were lost meanwhile:
/// their new owners dispatch those rows again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use]
pub(crate) struct Settled {
    pub(crate) dispatched: usize,
    pub(crate) failed: usize,
    pub(crate) dead: usize,
    pub(crate) lost: usize,
}

impl Settlement {
    /// Confirmed by the broker and routed to a queue.
    pub(super) fn dispatched(&mut self, row: RowId) {
        self.dispatched.push(row);
    }

    /// Returned or refused: counted, and its key put on hold.
    pub(super) fn failed(&mut self, row: &OutboxRow, error: String, backoff: &Backoff) {
        let hold = backoff.delay(row.attempts.saturating_add(1));
        self.failed.push(FailedRow {
            id: row.id,
            error,
            hold,
        });
    }

    /// A row that is no valid message: set aside at once.
    pub(super) fn malformed(&mut self, id: RowId, attempts: u32, malformed: Malformed) {
        self.bury(id, attempts, *malformed.raw, "malformed", malformed.reason);
    }

    /// A row whose payload is larger than what is allowed now: set aside at once.
    pub(super) fn too_large(&mut self, id: RowId, attempts: u32, envelope: Envelope, max: usize) {
        let error = format!(
            "payload has {} bytes, more than the {max} allowed",
            envelope.payload.len()
        );
        self.bury(id, attempts, envelope.into(), "too_large", error);
    }

    fn bury(
        &mut self,
        id: RowId,
        attempts: u32,
        message: RawMessage,
        reason: &'static str,
        error: String,
    ) {
        let letter = NewDeadLetter {
            origin: Origin::Dispatch,
            message,
            reason,
            error,
            attempts,
            again: None,
            parked: false,
            discarded: false,
            slot: None,
            first_failed_at: None,
            fingerprint: String::new(),
        };
        self.dead.push((id, letter));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.dispatched.is_empty() && self.failed.is_empty() && self.dead.is_empty()
    }

    /// Writes everything down. Each row carries its lane's fence; the dead letters of rows that are
    /// no longer ours are not written.
    pub(super) async fn write<D: Database>(
        self,
        store: &D::Store,
        session: &mut Session<D>,
        fences: &BTreeMap<Slot, Fence>,
    ) -> Result<Settled, StoreError> {
        let fences: Vec<Fence> = fences.values().cloned().collect();
        let mut settled = Settled::default();
        if !self.dispatched.is_empty() {
            let moved = store
                .mark_dispatched(session, &fences, &self.dispatched)
                .await?;
            settled.dispatched = moved.len();
            settled.lost += self.dispatched.len() - moved.len();
        }
        if !self.failed.is_empty() {
            let changed = store.mark_failed(session, &fences, &self.failed).await?;
            settled.failed = changed.len();
            settled.lost += self.failed.len() - changed.len();
        }
        if !self.dead.is_empty() {
            let rows: Vec<RowId> = self.dead.iter().map(|(row, _)| *row).collect();
            let removed = store.remove(session, &fences, &rows).await?;
            let letters: Vec<NewDeadLetter> = self
                .dead
                .into_iter()
                .filter(|(row, _)| removed.contains(row))
                .map(|(_, letter)| letter)
                .collect();
            store.bury(session, &letters).await?;
            settled.dead = letters.len();
            settled.lost += rows.len() - letters.len();
        }
        Ok(settled)
    }
}
