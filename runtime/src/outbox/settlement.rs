use std::collections::{BTreeMap, HashSet};

use super::failure::DispatchFailure;
use super::{DispatchPolicies, Unroutable};
use crate::dead_letter::{NewDeadLetter, Origin, fingerprint};
use crate::message::{OrderingKey, RawMessage, Slot};
use crate::retry::AfterDeadLetter;
use crate::store::{
    Database, DeadLetterStore, FailedRow, Fence, LetterId, OutboxRow, OutboxStore, RowId, Session,
    StoreError,
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
    /// Dead letters that a policy has dropped; not among the others.
    pub(crate) discarded: usize,
    pub(crate) lost: usize,
}

/// Whether a settlement may be committed.
#[must_use]
pub(super) enum Written {
    /// It may.
    Settled(Settled),
    /// It must be rolled back: it holds the dead letters of these rows, which are no longer ours.
    Strays(Vec<RowId>),
}

impl Settlement {
    /// Confirmed by the broker and routed to a queue.
    pub(super) fn dispatched(&mut self, row: RowId) {
        self.dispatched.push(row);
    }

    /// Not dispatched, by its own fault: by its type's policy it is put on hold, or it becomes a
    /// dead letter, parked or not, or is discarded. Whatever it is, it is so only once the
    /// settlement is committed: until then the row's successors must not be published.
    pub(super) fn fail(
        &mut self,
        row: &OutboxRow,
        failure: DispatchFailure,
        policies: &DispatchPolicies,
    ) {
        let policy = policies.of(message_type(row));
        let attempts = match failure.is_final() {
            // Nobody has tried it.
            true => row.attempts,
            false => row.attempts.saturating_add(1),
        };
        let discarded = matches!(failure, DispatchFailure::Unroutable(_))
            && policy.unroutable == Unroutable::Discard;
        if !failure.is_final() && !discarded && attempts < policy.attempts_max {
            self.failed.push(FailedRow {
                id: row.id,
                error: failure.error(),
                hold: policy.backoff.delay(attempts),
            });
            return;
        }
        let parked =
            !discarded && policy.after_dead_letter == AfterDeadLetter::Parked && key(row).is_some();
        let letter = letter(row, &failure, attempts, parked, discarded);
        self.dead.push((row.id, letter));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.dispatched.is_empty() && self.failed.is_empty() && self.dead.is_empty()
    }

    /// Leaves out dead letters of rows that are no longer ours.
    pub(super) fn leave_out(&mut self, strays: &[RowId]) {
        self.dead.retain(|(row, _)| !strays.contains(row));
    }

    /// Writes everything down, each row with its lane's fence.
    ///
    /// A dead letter's row becomes its place if it is parked, and is removed otherwise; a letter of
    /// a row that is no longer ours is not written. Parked rows name their letters, so those are
    /// written first: whether all of these rows were still ours is known only then.
    pub(super) async fn write<D: Database>(
        &self,
        store: &D::Store,
        session: &mut Session<D>,
        fences: &BTreeMap<Slot, Fence>,
    ) -> Result<Written, StoreError> {
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
        if self.dead.is_empty() {
            return Ok(Written::Settled(settled));
        }
        let leaving: Vec<RowId> = self
            .dead
            .iter()
            .filter(|(_, letter)| !letter.parked)
            .map(|(row, _)| *row)
            .collect();
        let mut removed = HashSet::new();
        if !leaving.is_empty() {
            removed.extend(store.remove(session, &fences, &leaving).await?);
        }
        let (rows, letters): (Vec<RowId>, Vec<NewDeadLetter>) = self
            .dead
            .iter()
            .filter(|(row, letter)| letter.parked || removed.contains(row))
            .cloned()
            .unzip();
        settled.lost += self.dead.len() - letters.len();
        if letters.is_empty() {
            return Ok(Written::Settled(settled));
        }
        let ids = store.bury(session, &letters).await?;
        assert_eq!(
            ids.len(),
            letters.len(),
            "a letter for each that was buried"
        );
        let places: Vec<(RowId, LetterId)> = rows
            .iter()
            .zip(&letters)
            .zip(ids)
            .filter(|((_, letter), _)| letter.parked)
            .map(|((row, _), id)| (*row, id))
            .collect();
        if !places.is_empty() {
            let parked: HashSet<RowId> = store
                .park(session, &fences, &places)
                .await?
                .into_iter()
                .collect();
            let strays: Vec<RowId> = places
                .into_iter()
                .map(|(row, _)| row)
                .filter(|row| !parked.contains(row))
                .collect();
            if !strays.is_empty() {
                return Ok(Written::Strays(strays));
            }
        }
        settled.discarded = letters.iter().filter(|letter| letter.discarded).count();
        settled.dead = letters.len() - settled.discarded;
        letters.iter().for_each(tell);
        Ok(Written::Settled(settled))
    }
}

fn letter(
    row: &OutboxRow,
    failure: &DispatchFailure,
    attempts: u32,
    parked: bool,
    discarded: bool,
) -> NewDeadLetter {
    let error = failure.error();
    NewDeadLetter {
        origin: Origin::Dispatch,
        message: match &row.message {
            Ok(envelope) => RawMessage::from(envelope.clone()),
            Err(malformed) => (*malformed.raw).clone(),
        },
        reason: failure.reason().as_str(),
        fingerprint: fingerprint(&error),
        error,
        attempts,
        again: row.letter,
        parked,
        discarded,
        slot: Some(row.id.slot),
        first_failed_at: row.failed_at,
    }
}

/// Says that a message was set aside.
fn tell(letter: &NewDeadLetter) {
    let (message_id, message_type) = (&letter.message.id, &letter.message.message_type);
    tracing::warn!(
        message_id = message_id.as_deref(),
        message_type = message_type.as_deref(),
        reason = letter.reason,
        error = letter.error,
        attempts = letter.attempts,
        key_parked = letter.parked,
        discarded = letter.discarded,
        "a message was set aside on its way to the broker"
    );
}

fn message_type(row: &OutboxRow) -> Option<&str> {
    match &row.message {
        Ok(envelope) => Some(envelope.message_type.as_str()),
        Err(malformed) => malformed.raw.message_type.as_deref(),
    }
}

/// The key that a row holds while it fails: a valid one, whatever else is wrong with the row.
pub(super) fn key(row: &OutboxRow) -> Option<OrderingKey> {
    match &row.message {
        Ok(envelope) => envelope.key.clone(),
        Err(malformed) => {
            let key = malformed.raw.key.as_deref()?;
            OrderingKey::new(key).ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Envelope, MessageType};
    use crate::outbox::DispatchPolicy;

    fn row(key: Option<&str>, attempts: u32) -> OutboxRow {
        let envelope = Envelope::builder(MessageType::new("t").unwrap(), "bytes");
        let key = key.map(|key| OrderingKey::new(key).unwrap());
        OutboxRow {
            id: RowId {
                slot: Slot::new(7).unwrap(),
                position: 1,
            },
            attempts,
            failed_at: None,
            letter: Some(LetterId(9)),
            message: Ok(envelope.key(key).build().unwrap()),
        }
    }

    fn unroutable() -> DispatchFailure {
        DispatchFailure::Unroutable("nobody".to_owned())
    }

    /// What one failure comes to: rows on hold, and letters.
    fn failed(
        row: &OutboxRow,
        failure: DispatchFailure,
        all: DispatchPolicy,
    ) -> (usize, Option<NewDeadLetter>) {
        let mut settlement = Settlement::default();
        let policies = DispatchPolicies {
            all,
            ..DispatchPolicies::default()
        };
        settlement.fail(row, failure, &policies);
        assert!(!settlement.is_empty());
        let Settlement { failed, dead, .. } = settlement;
        (failed.len(), dead.into_iter().next().map(|(_, it)| it))
    }

    #[test]
    fn the_last_attempt_is_the_one_that_sets_aside() {
        let policy = DispatchPolicy::default().attempts_max(3);
        for attempts in [0, 1] {
            let (held, letter) = failed(&row(Some("k"), attempts), unroutable(), policy);
            assert_eq!((held, letter.is_none()), (1, true));
        }
        // Also for a row that failed oftener, by an older policy.
        for attempts in [2, 50, u32::MAX] {
            let (held, letter) = failed(&row(Some("k"), attempts), unroutable(), policy);
            let letter = letter.unwrap();
            assert_eq!((held, letter.attempts), (0, attempts.saturating_add(1)));
            assert_eq!((letter.reason, letter.parked), ("unroutable", true));
            assert_eq!(letter.error, "unroutable: nobody");
            assert_eq!(letter.again, Some(LetterId(9)));
        }
    }

    #[test]
    fn only_a_key_is_parked_and_only_by_policy() {
        let policy = DispatchPolicy::default().attempts_max(1);
        let letter = |key, policy| failed(&row(key, 0), unroutable(), policy).1.unwrap();
        assert!(letter(Some("k"), policy).parked);
        assert!(!letter(None, policy).parked);
        let continues = policy.after_dead_letter(AfterDeadLetter::Continues);
        assert!(!letter(Some("k"), continues).parked);
    }

    #[test]
    fn only_what_no_queue_takes_is_dropped() {
        let policy = DispatchPolicy::default().unroutable(Unroutable::Discard);
        let row = row(Some("k"), 0);
        let (held, letter) = failed(&row, unroutable(), policy);
        let letter = letter.unwrap();
        assert_eq!((held, letter.discarded, letter.parked), (0, true, false));
        let refused = DispatchFailure::Refused("full".to_owned());
        assert_eq!(failed(&row, refused, policy).0, 1);
        let large = DispatchFailure::TooLarge("it has 9 bytes".to_owned());
        let letter = failed(&row, large, policy).1.unwrap();
        assert_eq!((letter.discarded, letter.parked), (false, true));
        assert_eq!((letter.reason, letter.attempts), ("too_large", 0));
    }
}
