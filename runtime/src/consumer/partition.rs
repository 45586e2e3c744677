use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::{Handled, Interruption};
use super::due::DueRun;
use super::{Handler, State};
use crate::broker::{
    BrokerDriver, BrokerError, Declaration, Delivery, PartitionQueue, Subscription,
};
use crate::lease::{Board, LeaseUse};
use crate::operations::Counters;
use crate::outbox::Outbox;
use crate::retry::Backoff;
use crate::store::Database;
use crate::supervision::{ChildError, Life, Wake, WakeListener};
use crate::telemetry::Client;

/// The retry table is looked at this often even if nothing is known to be in it: another process
/// may have left something.
const RETRY_LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// The board is looked at this often without a call: nothing may depend on one.
const LEASE_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Reads one partition of a consumer and handles its messages: the body of a partition actor.
///
/// It idles until this process holds the partition's lease. Then, each step one function: subscribe
/// → receive what is ready → handle it in one transaction (one by one after a failure) →
/// acknowledge; and in between, what is due in the retry table. An outage of database or broker is
/// nobody's attempt: deliveries are kept and tried again, without giving them back to the broker,
/// which would count that as a redelivery.
#[derive(Clone)]
pub(crate) struct Partition<D: Database> {
    pub(crate) store: D::Store,
    pub(crate) driver: Arc<dyn BrokerDriver<D>>,
    pub(crate) board: Board,
    pub(crate) queue: PartitionQueue,
    pub(crate) declaration: Declaration<D>,
    pub(crate) handlers: Arc<BTreeMap<&'static str, Handler<D>>>,
    pub(crate) state: State,
    pub(crate) outbox: Outbox<D>,
    pub(crate) enqueued: Wake,
    pub(crate) counters: Arc<Counters>,
    pub(crate) client: Client,
    /// Most deliveries handled in one transaction.
    pub(crate) batch: usize,
    /// Between tries of a message whose handler fails.
    pub(crate) backoff: Backoff,
    /// How long a message of a type without a handler waits for one.
    pub(crate) unknown_type_grace: Duration,
}

impl<D: Database> Partition<D> {
    /// Handles messages until the runtime drains.
    pub(crate) async fn run(self, life: Life) -> Result<(), ChildError> {
        let mut changes = self.board.changes();
        let mut failures = 0;
        while !life.is_draining() {
            changes.hear();
            let Some(lease) = self.board.use_lease(self.queue.number) else {
                if failures > 0 {
                    // Whatever was missing, it is missing to the lease's owner now.
                    failures = 0;
                    life.recovered();
                }
                tokio::select! {
                    () = changes.called() => {}
                    () = tokio::time::sleep(LEASE_LOOK_INTERVAL) => {}
                    () = life.draining() => {}
                }
                continue;
            };
            let mut subscription = match self.subscribe().await {
                Ok(subscription) => subscription,
                Err(error) => {
                    failures += 1;
                    // The lease goes first: another process may reach the broker.
                    drop(lease);
                    life.sit_out(failures, &error).await;
                    continue;
                }
            };
            failures = 0;
            life.recovered();
            let consumed = self.consume(&life, &lease, subscription.as_mut()).await;
            subscription.close().await;
            drop(lease);
            if let Err(error) = consumed {
                self.declaration.forget().await;
                failures += 1;
                life.sit_out(failures, &error).await;
            }
        }
        Ok(())
    }

    async fn subscribe(&self) -> Result<Box<dyn Subscription<D>>, BrokerError> {
        self.declaration.ensure().await?;
        self.driver.subscribe(&self.queue).await
    }

    /// Receives and handles until the lease ends, the runtime drains, or the subscription fails.
    async fn consume(
        &self,
        life: &Life,
        lease: &LeaseUse,
        subscription: &mut dyn Subscription<D>,
    ) -> Result<(), BrokerError> {
        let mut changes = self.board.changes();
        // Something may be due already, left by whoever had the partition before.
        let mut retry_at = Instant::now();
        loop {
            changes.hear();
            if life.is_draining() || !lease.may_go_on() {
                return Ok(());
            }
            if Instant::now() >= retry_at {
                let Some(next) = self.run_due_through_outages(life, lease).await else {
                    return Ok(());
                };
                retry_at = Instant::now() + next.min(RETRY_LOOK_INTERVAL);
            }
            let Some(received) = self
                .receive(life, lease, subscription, &mut changes, retry_at)
                .await
            else {
                continue;
            };
            let deliveries = received?;
            match self
                .handle_through_outages(life, lease, subscription, &deliveries)
                .await?
            {
                Some(Some(due)) => retry_at = retry_at.min(Instant::now() + due),
                Some(None) => {}
                None => return Ok(()),
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
        retry_at: Instant,
    ) -> Option<Result<Vec<Delivery>, BrokerError>> {
        let mut received = subscription.receive(self.batch);
        loop {
            tokio::select! {
                received = &mut received => return Some(received),
                () = tokio::time::sleep_until(retry_at.into()) => return None,
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

    /// Handles deliveries, again and again through outages of the database. `None` when the
    /// partition is to be given up.
    async fn handle_through_outages(
        &self,
        life: &Life,
        lease: &LeaseUse,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
    ) -> Result<Option<Option<Duration>>, BrokerError> {
        let mut failures = 0;
        loop {
            match self.handle(&lease.fence(), subscription, deliveries).await {
                Ok(Handled::Committed { next_retry }) => {
                    if failures > 0 {
                        life.recovered();
                    }
                    return Ok(Some(next_retry));
                }
                Ok(Handled::LeaseLost) => {
                    lease.lost();
                    return Ok(None);
                }
                Ok(Handled::Failed(error)) => {
                    // A single delivery's failure is held by `handle`; this would be a defect of
                    // ours.
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "a failure was not held"
                    );
                    return Ok(None);
                }
                Err(Interruption::Broker(error)) => return Err(error),
                Err(Interruption::Database(error)) => {
                    failures += 1;
                    life.sit_out(failures, &error).await;
                    if life.is_draining() || !lease.may_go_on() {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Runs what is due in the retry table; says how long until it is to be looked at again. `None`
    /// when the partition is to be given up.
    async fn run_due_through_outages(&self, life: &Life, lease: &LeaseUse) -> Option<Duration> {
        let mut failures = 0;
        loop {
            let go_on = || !life.is_draining() && lease.may_go_on();
            match self.run_due(&lease.fence(), go_on).await {
                Ok(DueRun::Done(next)) => {
                    if failures > 0 {
                        life.recovered();
                    }
                    return Some(next.unwrap_or(RETRY_LOOK_INTERVAL));
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
