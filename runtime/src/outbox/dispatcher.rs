use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use super::DispatchPolicies;
use super::failure::DispatchFailure;
use super::schedule::Schedule;
use super::settlement::{Settled, Settlement, Written, key};
use super::wave::Waves;
use crate::broker::{
    BrokerDriver, BrokerError, BrokerErrorKind, Declaration, PublishOutcome, Publisher,
};
use crate::lease::{Board, LeaseUse};
use crate::message::Slot;
use crate::operations::Counters;
use crate::store::{Database, Fence, OutboxRow, OutboxStore, RowId, ScheduleStore, Session, Store};
use crate::supervision::{ChildError, Life, Wake, WakeListener, crash_point};
use crate::telemetry::{self, Client};

/// The pause after the first look that found nothing; it doubles from there.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Publishes the rows of its lanes: the body of a dispatcher actor.
///
/// One round, each step one function: take lanes → enqueue what is due → claim rows → set aside
/// what can never be dispatched → publish in waves → settle. No transaction is open while publishing. An outage of
/// broker or database backs off the dispatcher and is no row's attempt.
#[derive(Clone)]
pub(crate) struct Dispatcher<D: Database> {
    pub(crate) store: D::Store,
    pub(crate) driver: Arc<dyn BrokerDriver<D>>,
    pub(crate) board: Board,
    /// What this process's own consumers need of the broker: declared before a row is published,
    /// which would find no queue otherwise.
    pub(crate) declarations: Vec<Declaration<D>>,
    /// Which dispatcher of the process this is, and of how many: it serves the lanes with `number %
    /// of == index`.
    pub(crate) index: u8,
    pub(crate) of: u8,
    pub(crate) batch: usize,
    pub(crate) payload_bytes_max: usize,
    /// What becomes of rows that the broker does not take.
    pub(crate) policies: Arc<DispatchPolicies>,
    pub(crate) poll_interval_max: Duration,
    /// Called when the outbox may have got rows.
    pub(crate) enqueued: Wake,
    pub(crate) counters: Arc<Counters>,
    pub(crate) client: Client,
    /// Called after rows were dispatched through the database broker.
    pub(crate) filled: Wake,
}

/// How a round ended.
enum Round {
    /// There may be more.
    Worked,
    /// Nothing to do for so long, as far as is known: then a row's hold is over, or it is time to
    /// look for scheduled messages. `None` without lanes.
    Idle(Option<Duration>),
}

impl<D: Database> Dispatcher<D> {
    /// Dispatches until the runtime drains.
    pub(crate) async fn run(self, life: Life) -> Result<(), ChildError> {
        let mut enqueued = self.enqueued.listen();
        let mut changes = self.board.changes();
        let mut lanes: BTreeMap<Slot, LeaseUse> = BTreeMap::new();
        let mut publisher: Option<Box<dyn Publisher<D>>> = None;
        let mut failures = 0;
        let mut pause = POLL_INTERVAL_MIN;
        let mut schedule = Schedule::new(self.poll_interval_max);
        while !life.is_draining() {
            // Both, each time.
            if enqueued.hear() | changes.hear() {
                schedule.called();
            }
            self.take_lanes(&mut lanes);
            match self.round(&lanes, &mut schedule, &mut publisher).await {
                Ok(Round::Worked) => pause = POLL_INTERVAL_MIN,
                Ok(Round::Idle(due)) => {
                    let wait = due.map_or(pause, |due| due.min(pause));
                    if self.rest(&life, wait, &mut enqueued, &mut changes).await {
                        schedule.called();
                    }
                    pause = (pause * 2).min(self.poll_interval_max);
                }
                Err(error) => {
                    // Whatever it was, nothing is known of the channel: the next round makes a new
                    // one.
                    publisher = None;
                    failures += 1;
                    if is_closed(error.as_ref()) {
                        self.forget_declarations().await;
                    }
                    life.sit_out(failures, error.as_ref()).await;
                    continue;
                }
            }
            if failures > 0 {
                failures = 0;
                life.recovered();
                tracing::info!(dispatcher = %life.name, "dispatch goes on");
            }
        }
        Ok(())
    }

    /// Has everything declared that this process's consumers need, before there is a new publisher.
    async fn declare(&self) {
        for declaration in &self.declarations {
            // One that fails concerns its consumer's partition actors, who go on trying; other
            // types are dispatched.
            if let Err(error) = declaration.ensure().await {
                tracing::debug!(error = &error as &dyn std::error::Error, "not declared yet");
            }
        }
    }

    /// Has it declared again: if an exchange was deleted, so were its bindings, and no queue's
    /// consumer notices.
    async fn forget_declarations(&self) {
        for declaration in &self.declarations {
            declaration.forget().await;
        }
    }

    /// Gives up lanes that are lost or to be handed over (nothing is in flight between rounds), and
    /// takes those that are free for use.
    fn take_lanes(&self, lanes: &mut BTreeMap<Slot, LeaseUse>) {
        lanes.retain(|_, lease| lease.may_go_on());
        for number in self.board.usable() {
            let Some(slot) = Slot::new(number).filter(|_| number % self.of == self.index) else {
                continue;
            };
            // One that is in use already, by this dispatcher, is not given out twice.
            if let Some(lease) = self.board.use_lease(number) {
                lanes.insert(slot, lease);
            }
        }
    }

    /// Waits so long, or until there may be something to do; whether somebody said so.
    async fn rest(
        &self,
        life: &Life,
        wait: Duration,
        enqueued: &mut WakeListener,
        changes: &mut WakeListener,
    ) -> bool {
        tokio::select! {
            () = tokio::time::sleep(wait) => false,
            () = enqueued.called() => true,
            () = changes.called() => true,
            () = life.draining() => false,
        }
    }

    async fn round(
        &self,
        lanes: &BTreeMap<Slot, LeaseUse>,
        schedule: &mut Schedule,
        publisher: &mut Option<Box<dyn Publisher<D>>>,
    ) -> Result<Round, ChildError> {
        if lanes.is_empty() {
            return Ok(Round::Idle(None));
        }
        let slots: Vec<Slot> = lanes.keys().copied().collect();
        let fences = lanes
            .iter()
            .map(|(slot, lease)| (*slot, lease.fence()))
            .collect();
        let mut session = self.store.begin().await?;
        if schedule.is_time() {
            self.enqueue_due(&mut session, &slots, &fences, schedule)
                .await?;
        }
        let claimed = self
            .store
            .pending(&mut session, &slots, &[], self.batch)
            .await?;
        let held = match claimed.is_empty() {
            true => self.store.next_due(&mut session, &slots).await?,
            false => None,
        };
        session.commit().await?;
        crash_point!("dispatch.claimed");
        if claimed.is_empty() {
            let scheduled = schedule.wait();
            let due = held.map_or(scheduled, |held| held.min(scheduled));
            return Ok(Round::Idle(Some(due)));
        }
        let mut settlement = Settlement::default();
        let rows = self.set_aside(claimed, &mut settlement);
        let settled = self
            .publish_all(rows, settlement, &fences, publisher)
            .await?;
        self.counters.add_dispatched(&settled);
        if settled.lost > 0 {
            tracing::info!(
                rows = settled.lost,
                "lanes were lost before their rows were settled"
            );
            lanes.values().for_each(LeaseUse::lost);
        }
        Ok(Round::Worked)
    }

    /// Moves scheduled messages that are due to the outbox, a batch at most: what waits there
    /// already has its turn before the next ones.
    async fn enqueue_due(
        &self,
        session: &mut Session<D>,
        slots: &[Slot],
        fences: &BTreeMap<Slot, Fence>,
        schedule: &mut Schedule,
    ) -> Result<(), ChildError> {
        let next = self.store.next_scheduled(session, slots).await?;
        if next.is_none_or(|next| next > Duration::ZERO) {
            schedule.looked(next);
            return Ok(());
        }
        let fences: Vec<Fence> = fences.values().cloned().collect();
        let moved = self
            .store
            .enqueue_due(session, &fences, slots, self.batch)
            .await?;
        schedule.moved(moved);
        crash_point!("dispatch.enqueued_due");
        Ok(())
    }

    /// Keeps what can be dispatched. Malformed rows and rows above the size limit fail, alone; of
    /// their keys nothing more is kept, since they are set aside only once that is committed.
    fn set_aside(&self, claimed: Vec<OutboxRow>, settlement: &mut Settlement) -> Vec<OutboxRow> {
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
    async fn publish_all(
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
            self.declare().await;
            *publisher = Some(self.driver.publisher().await?);
        }
        let publisher = publisher.as_mut().expect("it was just made").as_mut();
        if self.driver.capabilities().transactional {
            return self
                .publish_and_settle(publisher, rows, settlement, fences)
                .await;
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

/// Whether the broker closed the channel over what it was asked.
fn is_closed(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<BrokerError>();
    error.is_some_and(|error| error.kind() == BrokerErrorKind::Closed)
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
