use std::time::{Duration, Instant};

use futures_util::FutureExt;

use super::batch::Taken;
use super::disturbance::Interruption;
use super::drain::Calm;
use super::due::DueRun;
use super::overflow::Overflow;
use super::partition::Partition;
use crate::broker::{BrokerError, Delivery, Subscription};
use crate::lease::LeaseUse;
use crate::store::Database;
use crate::supervision::{Doing, Life, WakeListener, crash_point};

/// While more is due in the retry table, deliveries get this long to arrive in between: a long
/// backlog of one key delays no other.
pub(super) const RECEIVE_TURN: Duration = Duration::from_millis(10);

/// At first they get this long before anything is run alone that processes have died of: it may be
/// what this one dies of.
const FIRST_TURN: Duration = Duration::from_millis(250);

/// Why a subscription is closed, if not for an error of the broker's.
pub(super) enum End {
    /// The lease has ended, or the runtime drains.
    GivenUp,
    /// The layout is to change, and the queue is empty.
    Drained,
    /// Too much waits behind a key.
    Overflow(Overflow),
}

impl<D: Database> Partition<D> {
    /// Receives and handles until the lease ends, the runtime drains, a key overflows, or the
    /// subscription fails.
    pub(super) async fn consume(
        &self,
        life: &Life,
        lease: &LeaseUse,
        subscription: &mut dyn Subscription<D>,
    ) -> Result<End, BrokerError> {
        let mut changes = self.board.changes();
        // Something may be due already, left by whoever had the partition before.
        let mut retry_at = Instant::now();
        let mut turn_ends = Instant::now() + FIRST_TURN;
        let mut calm = Calm::default();
        loop {
            changes.hear();
            if life.is_draining() || !lease.may_go_on() {
                return Ok(End::GivenUp);
            }
            if Instant::now() >= retry_at {
                self.progress.begin(Doing::Working);
                let alone = Instant::now() >= turn_ends;
                let Some(next) = self.run_due_through_outages(life, lease, alone).await else {
                    return Ok(End::GivenUp);
                };
                retry_at = Instant::now() + next;
                if alone {
                    turn_ends = Instant::now() + RECEIVE_TURN;
                }
            }
            let to_drain = self.is_to_drain();
            let mut received = None;
            if to_drain && self.seems_drained(subscription, &mut calm).await? {
                received = subscription.receive(self.batch).now_or_never();
                if received.is_none() {
                    return Ok(End::Drained);
                }
            }
            let look_at = match to_drain {
                true => retry_at.min(Instant::now() + self.next_look()),
                false => retry_at,
            };
            let look_at = look_at.max(Instant::now() + RECEIVE_TURN);
            if received.is_none() {
                self.progress.begin(Doing::Waiting);
                received = self
                    .receive(life, lease, subscription, &mut changes, look_at)
                    .await;
            }
            let Some(received) = received else {
                continue;
            };
            let deliveries = received?;
            self.progress.begin(Doing::Working);
            self.progress.step();
            crash_point!("consume.delivered");
            calm.end();
            match self
                .handle_through_outages(life, lease, subscription, &deliveries)
                .await?
            {
                Ok(Some(due)) => retry_at = retry_at.min(Instant::now() + due),
                Ok(None) => {}
                Err(end) => return Ok(end),
            }
        }
    }

    /// Waits for deliveries; `None` when there is something else to look at first: the retry table
    /// is due, the lease has ended, the runtime drains. A change of other leases does not interrupt
    /// it.
    async fn receive(
        &self,
        life: &Life,
        lease: &LeaseUse,
        subscription: &mut dyn Subscription<D>,
        changes: &mut WakeListener,
        look_at: Instant,
    ) -> Option<Result<Vec<Delivery>, BrokerError>> {
        let mut received = subscription.receive(self.batch);
        loop {
            tokio::select! {
                received = &mut received => return Some(received),
                () = tokio::time::sleep_until(look_at.into()) => return None,
                // Nobody calls when the lease runs out since the database is out of reach; whoever
                // takes it over waits for the queue. A renewed one has time left again.
                () = tokio::time::sleep(lease.remaining()) => {
                    if !lease.may_go_on() {
                        return None;
                    }
                }
                () = changes.called() => {
                    if !lease.may_go_on() {
                        return None;
                    }
                }
                () = life.draining() => return None,
            }
        }
    }

    /// Handles deliveries, again and again through outages of the database; says when the retry
    /// table is due if they added to it, or why there is an end.
    async fn handle_through_outages(
        &self,
        life: &Life,
        lease: &LeaseUse,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
    ) -> Result<Result<Option<Duration>, End>, BrokerError> {
        // A broker that counts says which deliveries are suspect; with another one, all are that a
        // dead owner may have had in hand.
        let suspicious = !self.driver.capabilities().delivery_limit && lease.is_taken_over();
        let mut failures = 0;
        loop {
            match self
                .handle_apart(&lease.fence(), subscription, deliveries, suspicious)
                .await
            {
                Ok(Taken::Committed { next_retry }) => {
                    if failures > 0 {
                        life.recovered();
                    }
                    if suspicious {
                        lease.trust();
                    }
                    return Ok(Ok(next_retry));
                }
                Ok(Taken::LeaseLost) => {
                    lease.lost();
                    return Ok(Err(End::GivenUp));
                }
                Ok(Taken::Overflow(overflow)) => return Ok(Err(End::Overflow(overflow))),
                Err(Interruption::Broker(error)) => return Err(error),
                Err(Interruption::Database(error)) => {
                    failures += 1;
                    life.sit_out(failures, &error).await;
                    if life.is_draining() || !lease.may_go_on() {
                        return Ok(Err(End::GivenUp));
                    }
                }
            }
        }
    }

    /// Runs what is due in the retry table, a batch of it, something alone if that is allowed; says
    /// how long until it is to be looked at again. `None` when the partition is to be given up.
    pub(super) async fn run_due_through_outages(
        &self,
        life: &Life,
        lease: &LeaseUse,
        alone: bool,
    ) -> Option<Duration> {
        let mut failures = 0;
        loop {
            let go_on = || !life.is_draining() && lease.may_go_on();
            match self.run_due(&lease.fence(), alone, go_on).await {
                Ok(DueRun::Done(next)) => {
                    if failures > 0 {
                        life.recovered();
                    }
                    let next = next.unwrap_or(self.retry_look_interval);
                    return Some(next.min(self.retry_look_interval));
                }
                Ok(DueRun::LeaseLost) => {
                    lease.lost();
                    return None;
                }
                Err(Interruption::Broker(error)) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "retries use no broker"
                    );
                    return None;
                }
                Err(Interruption::Database(error)) => {
                    failures += 1;
                    life.sit_out(failures, &error).await;
                    if !go_on() {
                        return None;
                    }
                }
            }
        }
    }
}
