use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::DispatchPolicies;
use super::schedule::Schedule;
use super::settlement::Settlement;
use crate::broker::{BrokerDriver, BrokerError, BrokerErrorKind, Publisher};
use crate::layout::Declaration;
use crate::lease::{Board, LeaseUse};
use crate::message::Slot;
use crate::operations::Counters;
use crate::store::{Database, Fence, OutboxStore, ScheduleStore, Session, Store};
use crate::supervision::{ChildError, Doing, Life, Progress, Wake, WakeListener, crash_point};
use crate::telemetry::Client;

/// The pause after the first look that found nothing; it doubles from there.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// Publishes the rows of its lanes: the body of a dispatcher actor.
///
/// One round, each step one function: take lanes → enqueue what is due → claim rows → set aside
/// what can never be dispatched → publish in waves → settle (the last three in `publishing`). No
/// transaction is open while publishing. An outage of broker or database backs off the dispatcher
/// and is no row's attempt.
#[derive(Clone)]
pub(crate) struct Dispatcher<D: Database> {
    /// It works from when it has claimed rows until they are settled; each wave is a step.
    pub(crate) progress: Progress,
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
            self.progress.begin(Doing::Waiting);
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
    ///
    /// # Errors
    /// An outage: published nevertheless, a row could find no queue, which would count as its
    /// attempt.
    pub(super) async fn declare(&self) -> Result<(), BrokerError> {
        for declaration in &self.declarations {
            match declaration.ensure().await {
                Err(error) if error.kind().is_outage() => return Err(error),
                // A refusal concerns its consumer's partition actors, who go on trying; other types
                // are dispatched.
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "not declared yet");
                }
                Ok(()) => {}
            }
        }
        Ok(())
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
        self.progress.begin(Doing::Working);
        let mut settlement = Settlement::default();
        let rows = self.set_aside(claimed, &mut settlement);
        let settled = self
            .publish_all(rows, settlement, &fences, publisher)
            .await?;
        self.counters.add_dispatched(&settled);
        self.progress.step();
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
}

/// Whether the broker closed the channel over what it was asked.
fn is_closed(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<BrokerError>();
    error.is_some_and(|error| error.kind() == BrokerErrorKind::Closed)
}
