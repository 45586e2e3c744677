use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::State;
use super::handlers::Handlers;
use super::intake::End;
use super::overflow::HeldCounts;
use crate::broker::{BrokerDriver, BrokerError, PartitionQueue, Subscription};
use crate::layout::{Declaration, LayoutWatch};
use crate::lease::{Board, LeaseUse, MemberId, Resource};
use crate::operations::Counters;
use crate::outbox::Outbox;
use crate::store::{Database, RetryStore, Store};
use crate::supervision::{ChildError, Doing, Life, Progress, Registry, Wake};
use crate::telemetry::Client;

/// The board is looked at this often without a call: nothing may depend on one.
pub(super) const LEASE_LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Reads one partition of a consumer and handles its messages: the body of a partition actor.
///
/// It idles until this process holds the partition's lease. Then, each step one function: subscribe
/// → receive what is ready → handle it in one transaction (in parts around one that fails) →
/// acknowledge; and in between, what is due in the retry table. An outage of database or broker is
/// nobody's attempt: deliveries are kept and tried again, without giving them back to the broker,
/// which would count that as a redelivery.
#[derive(Clone)]
pub(crate) struct Partition<D: Database> {
    /// Its actor's name in the registry.
    pub(crate) child: Arc<str>,
    pub(crate) registry: Registry,
    pub(crate) progress: Progress,
    pub(crate) store: D::Store,
    pub(crate) driver: Arc<dyn BrokerDriver<D>>,
    pub(crate) board: Board,
    pub(crate) member: MemberId,
    /// Which partition, of which consumer; of which layout, its lease says.
    pub(crate) queue: PartitionQueue,
    pub(crate) layout: LayoutWatch,
    /// How long a queue has to be found empty until it is taken for drained.
    pub(crate) settle: Duration,
    pub(crate) declaration: Declaration<D>,
    pub(crate) handlers: Arc<Handlers<D>>,
    pub(crate) state: State,
    pub(crate) outbox: Outbox<D>,
    pub(crate) enqueued: Wake,
    pub(crate) counters: Arc<Counters>,
    pub(crate) client: Client,
    /// Most deliveries handled in one transaction.
    pub(crate) batch: usize,
    /// The retry table is looked at this often even if nothing is known to be in it: another process
    /// may have left something, or an operator.
    pub(crate) retry_look_interval: Duration,
    /// How long a message of a type without a handler waits for one.
    pub(crate) unknown_type_grace: Duration,
    /// How much waits behind each key.
    pub(crate) held: HeldCounts,
    /// The process's turn to run a message of which processes may have died: one at a time over all
    /// partitions and consumers, since a death is counted against all that are.
    pub(crate) alone: Arc<Mutex<()>>,
}

impl<D: Database> Partition<D> {
    /// Handles messages until the runtime drains.
    pub(crate) async fn run(mut self, life: Life) -> Result<(), ChildError> {
        let mut changes = self.board.changes();
        let mut failures = 0;
        while !life.is_draining() {
            self.progress.begin(Doing::Nothing);
            changes.hear();
            let Some(lease) = self.board.use_lease(self.queue.number) else {
                // Whatever was missing, it is missing to the lease's owner now.
                failures = 0;
                life.recovered();
                let came = tokio::select! {
                    () = changes.called() => true,
                    () = tokio::time::sleep(LEASE_LOOK_INTERVAL) => false,
                    () = life.draining() => true,
                };
                if !came {
                    tokio::select! {
                        () = self.declare_idle() => {}
                        () = life.draining() => {}
                    }
                }
                continue;
            };
            self.turn_to(&lease);
            if self
                .layout
                .drained(self.queue.generation, self.queue.number)
                == Some(true)
            {
                self.wait_for_release(&life, &lease).await;
                self.unclaim().await;
                continue;
            }
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
            self.held.forget();
            let consumed = self.consume(&life, &lease, subscription.as_mut()).await;
            self.progress.begin(Doing::Nothing);
            subscription.close().await;
            self.unclaim().await;
            match consumed {
                Ok(End::GivenUp) => {}
                Ok(End::Drained) => {
                    if let Err(error) = self.write_drained(&lease).await {
                        drop(lease);
                        failures += 1;
                        life.sit_out(failures, &error).await;
                    }
                }
                Ok(End::Overflow(overflow)) => {
                    self.wait_for_relief(&life, &lease, &overflow).await;
                    self.unclaim().await;
                }
                Err(error) => {
                    drop(lease);
                    self.declaration.forget().await;
                    failures += 1;
                    life.sit_out(failures, &error).await;
                }
            }
        }
        Ok(())
    }

    /// Goes by the layout of the lease.
    fn turn_to(&mut self, lease: &LeaseUse) {
        if let Resource::Partitions { generation, .. } = lease.resource() {
            self.queue.generation = *generation;
        }
    }

    /// While no lease comes, one of the actors sees to it that the broker knows what this process
    /// consumes: it may be the first of a new version, and without a partition yet.
    async fn declare_idle(&self) {
        if self.queue.number == 0
            && !*self.declaration.done().borrow()
            && let Err(error) = self.declaration.ensure_in_use().await
        {
            tracing::debug!(error = &error as &dyn std::error::Error, "not declared yet");
        }
    }

    /// Ends the claims on messages of the retry table that this tenure did not get to: who takes the
    /// partition over would take them for what this process died of.
    async fn unclaim(&self) {
        let unclaimed = async {
            let mut session = self.store.begin().await?;
            let (consumer, slots) = (&self.queue.consumer, self.queue.slots());
            self.store
                .unclaim(&mut session, consumer, slots, self.member)
                .await?;
            session.commit().await
        };
        // Without the database: they cost the next owner a transaction each.
        if let Err(error) = unclaimed.await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "claims were not ended"
            );
        }
    }

    async fn subscribe(&self) -> Result<Box<dyn Subscription<D>>, BrokerError> {
        self.declaration.ensure_in_use().await?;
        self.driver.subscribe(&self.queue).await
    }
}
