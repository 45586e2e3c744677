//! From claimed rows to settled ones: the second half of a dispatcher's round.

use std::collections::{BTreeMap, HashSet};

use super::Dispatcher;
use super::failure::DispatchFailure;
use super::settlement::{Settled, Settlement, Written, key};
use super::wave::Waves;
use crate::broker::{PublishOutcome, Publisher};
use crate::message::Slot;
use crate::store::{Database, Fence, OutboxRow, RowId, Store};
use crate::supervision::broken::{self, Mistake};
use crate::supervision::{ChildError, crash_point};
use crate::telemetry;

impl<D: Database> Dispatcher<D> {
    /// Keeps what can be dispatched. Malformed rows and rows above the size limit fail, alone; of
    /// their keys nothing more is kept, since they are set aside only once that is committed.
    pub(super) fn set_aside(
        &self,
        claimed: Vec<OutboxRow>,
        settlement: &mut Settlement,
    ) -> Vec<OutboxRow> {
        let mut rows = Vec::with_capacity(claimed.len());
        let mut failed = HashSet::new();
        for row in claimed {
            let failure = match &row.message {
                _ if !failed.is_empty() && key(&row).is_some_and(|key| failed.contains(&key)) => {
                    continue;
                }
                Ok(envelope) if envelope.payload.len() > self.payload_bytes_max => {
                    let (bytes, max) = (envelope.payload.len(), self.payload_bytes_max);
                    DispatchFailure::TooLarge(format!(
                        "payload has {bytes} bytes, more than the {max} allowed"
                    ))
                }
                Ok(_) => {
                    rows.push(row);
                    continue;
                }
                Err(malformed) => DispatchFailure::Malformed(malformed.reason.clone()),
            };
            settlement.fail(&row, failure, &self.policies);
            failed.extend(key(&row));
        }
        rows
    }

    /// Publishes rows and settles them, with what was set aside before.
    pub(super) async fn publish_all(
        &self,
        rows: Vec<OutboxRow>,
        mut settlement: Settlement,
        fences: &BTreeMap<Slot, Fence>,
        publisher: &mut Option<Box<dyn Publisher<D>>>,
    ) -> Result<Settled, ChildError> {
        if rows.is_empty() {
            return self.settle(settlement, fences).await;
        }
        if publisher.is_none() {
            self.declare().await?;
            *publisher = Some(self.driver.publisher().await?);
        }
        let publisher = publisher.as_mut().expect("it was just made").as_mut();
        if self.driver.capabilities().transactional {
            return self
                .publish_and_settle(publisher, rows, settlement, fences)
                .await;
        }
        if broken::makes(Mistake::Confirm) {
            let mut early = Settlement::default();
            rows.iter().for_each(|row| early.dispatched(row.id));
            let settled = self.settle(early, fences).await?;
            self.publish(publisher, rows, &mut settlement).await?;
            return Ok(settled);
        }
        let published = self.publish(publisher, rows, &mut settlement).await;
        // What was confirmed before an outage is settled all the same.
        let settled = self.settle(settlement, fences).await?;
        published?;
        Ok(settled)
    }

    /// Publishes wave after wave, each key's next row after its previous one was confirmed.
    async fn publish(
        &self,
        publisher: &mut dyn Publisher<D>,
        rows: Vec<OutboxRow>,
        settlement: &mut Settlement,
    ) -> Result<(), ChildError> {
        let mut waves = Waves::new(rows);
        loop {
            let wave = waves.next(self.batch);
            if wave.is_empty() {
                return Ok(());
            }
            let outcomes =
                telemetry::sending(&self.client, &wave, publisher.publish(&wave)).await?;
            crash_point!("dispatch.published");
            self.progress.step();
            for (row, outcome) in wave.iter().zip(outcomes) {
                let failure = match outcome {
                    PublishOutcome::Confirmed => {
                        settlement.dispatched(row.id);
                        continue;
                    }
                    PublishOutcome::Returned(text) => Some(DispatchFailure::Unroutable(text)),
                    PublishOutcome::Refused(text) => Some(DispatchFailure::Refused(text)),
                    PublishOutcome::TooLarge(text) => Some(DispatchFailure::TooLarge(text)),
                    PublishOutcome::Malformed(text) => Some(DispatchFailure::Malformed(text)),
                    PublishOutcome::Unknown => None,
                };
                if let Some(failure) = failure {
                    settlement.fail(row, failure, &self.policies);
                }
                // Whatever its policy says: its successors go on when it is settled.
                waves.fail(row);
            }
        }
    }

    /// Settles in one transaction; again without those whose lanes turn out to be lost.
    async fn settle(
        &self,
        mut settlement: Settlement,
        fences: &BTreeMap<Slot, Fence>,
    ) -> Result<Settled, ChildError> {
        let mut lost = 0;
        while !settlement.is_empty() {
            let mut session = self.store.begin().await?;
            match settlement.write(&self.store, &mut session, fences).await? {
                Written::Settled(mut settled) => {
                    crash_point!("dispatch.settling");
                    session.commit().await?;
                    crash_point!("dispatch.settled");
                    settled.lost += lost;
                    return Ok(settled);
                }
                Written::Strays(strays) => {
                    session.rollback().await;
                    lost += strays.len();
                    settlement.leave_out(&strays);
                }
            }
        }
        Ok(Settled {
            lost,
            ..Settled::default()
        })
    }

    /// For a transactional broker: fills the queues and settles in one transaction.
    ///
    /// All rows are routed at once. If one of a key found no queue while a successor did, the
    /// transaction is undone and done again without that key's successors, so that none overtakes.
    async fn publish_and_settle(
        &self,
        publisher: &mut dyn Publisher<D>,
        rows: Vec<OutboxRow>,
        mut settlement: Settlement,
        fences: &BTreeMap<Slot, Fence>,
    ) -> Result<Settled, ChildError> {
        let mut rows = rows;
        loop {
            let mut session = self.store.begin().await?;
            let ids: Vec<RowId> = rows.iter().map(|row| row.id).collect();
            let route = publisher.publish_within(&mut session, &ids);
            let routed = telemetry::routing(&self.client, &rows, route).await?;
            let routed: HashSet<RowId> = routed.into_iter().collect();
            let kept = without_overtakers(&rows, &routed);
            if kept.len() < rows.len() {
                session.rollback().await;
                rows = kept;
                continue;
            }
            for row in &rows {
                if routed.contains(&row.id) {
                    settlement.dispatched(row.id);
                } else {
                    let text = "no consumer takes this message type".to_owned();
                    settlement.fail(row, DispatchFailure::Unroutable(text), &self.policies);
                }
            }
            crash_point!("dispatch.published");
            let lost = match settlement.write(&self.store, &mut session, fences).await? {
                Written::Settled(settled) if settled.lost == 0 => {
                    crash_point!("dispatch.settling");
                    session.commit().await?;
                    crash_point!("dispatch.settled");
                    self.filled.call();
                    return Ok(settled);
                }
                Written::Settled(settled) => settled.lost,
                Written::Strays(strays) => strays.len(),
            };
            // Routed, but not ours any more: undo it all. The lanes' new owners route these rows.
            session.rollback().await;
            return Ok(Settled {
                lost,
                ..Settled::default()
            });
        }
    }
}

/// The rows without those whose key has an earlier row that found no queue.
fn without_overtakers(rows: &[OutboxRow], routed: &HashSet<RowId>) -> Vec<OutboxRow> {
    let mut stopped = HashSet::new();
    let mut kept = Vec::with_capacity(rows.len());
    for row in rows {
        let key = key(row);
        if key.as_ref().is_some_and(|key| stopped.contains(key)) {
            continue;
        }
        if !routed.contains(&row.id) {
            stopped.extend(key);
        }
        kept.push(row.clone());
    }
    kept
}
