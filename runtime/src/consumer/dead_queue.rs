use super::aside::{Aside, Death};
use super::batch::{message_id, tags};
use super::disturbance::Interruption;
use super::partition::{LEASE_LOOK_INTERVAL, Partition};
use crate::broker::{BrokerError, Delivery, Subscription};
use crate::dead_letter::Reason;
use crate::store::{Admission, Database, Fence, Store};
use crate::supervision::{ChildError, Life, crash_point};

/// Reads what the broker gave up on, `<consumer>.dead`, and sets it aside as dead letters: the body
/// of a dead-queue actor, one per consumer, on a broker with a delivery limit.
///
/// It is the backstop behind the suspects ([`Partition::handle_apart`]): a message lands there that
/// ended its channel again and again before any handler saw it. Messages of its key may have got
/// through meanwhile. It goes through the inbox: what was handled, or is a dead letter already, is
/// only acknowledged. The owner of partition 0 reads it, so that one process does.
#[derive(Clone)]
pub(crate) struct DeadQueue<D: Database> {
    pub(crate) partition: Partition<D>,
}

impl<D: Database> DeadQueue<D> {
    /// Reads until the runtime drains.
    pub(crate) async fn run(self, life: Life) -> Result<(), ChildError> {
        let board = &self.partition.board;
        let mut changes = board.changes();
        let mut failures = 0;
        while !life.is_draining() {
            changes.hear();
            if board.fence(0).is_none() {
                // Whatever was missing, it is missing to the lease's owner now.
                failures = 0;
                life.recovered();
                tokio::select! {
                    () = changes.called() => {}
                    () = tokio::time::sleep(LEASE_LOOK_INTERVAL) => {}
                    () = life.draining() => {}
                }
                continue;
            }
            match self.read(&life, &mut failures).await {
                Ok(()) => {}
                Err(error) => {
                    self.partition.declaration.forget().await;
                    failures += 1;
                    life.sit_out(failures, &error).await;
                }
            }
        }
        Ok(())
    }

    async fn read(&self, life: &Life, failures: &mut u32) -> Result<(), BrokerError> {
        let Partition {
            declaration,
            driver,
            queue,
            ..
        } = &self.partition;
        declaration.ensure().await?;
        let Some(mut subscription) = driver.subscribe_dead(&queue.consumer).await? else {
            life.draining().await;
            return Ok(());
        };
        *failures = 0;
        life.recovered();
        let read = self.read_from(life, subscription.as_mut()).await;
        subscription.close().await;
        read
    }

    async fn read_from(
        &self,
        life: &Life,
        subscription: &mut dyn Subscription<D>,
    ) -> Result<(), BrokerError> {
        let board = &self.partition.board;
        loop {
            let deliveries = tokio::select! {
                received = subscription.receive(self.partition.batch) => received?,
                () = tokio::time::sleep(LEASE_LOOK_INTERVAL) => Vec::new(),
                () = life.draining() => return Ok(()),
            };
            let mut failures = 0;
            // Through outages of the database without giving anything back: that would count as a
            // delivery.
            loop {
                let Some(fence) = board.fence(0) else {
                    return Ok(());
                };
                if deliveries.is_empty() {
                    break;
                }
                match self.bury(&fence, subscription, &deliveries).await {
                    Ok(true) => {
                        if failures > 0 {
                            life.recovered();
                        }
                        break;
                    }
                    Ok(false) => return Ok(()),
                    Err(Interruption::Broker(error)) => return Err(error),
                    Err(Interruption::Database(error)) => {
                        failures += 1;
                        life.sit_out(failures, &error).await;
                        if life.is_draining() {
                            return Ok(());
                        }
                    }
                }
            }
        }
    }

    /// Sets deliveries aside with their inbox ids, in one transaction, after which they are
    /// acknowledged. `false` if partition 0 belongs to somebody else.
    async fn bury(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
    ) -> Result<bool, Interruption> {
        let partition = &self.partition;
        let mut session = partition.store.begin().await?;
        let mut fresh = match partition.admit(&mut session, fence, deliveries).await? {
            Admission::LeaseLost => {
                session.rollback().await;
                return Ok(false);
            }
            Admission::Admitted { fresh, .. } => fresh,
        };
        let (mut aside, mut duplicates) = (Aside::default(), 0);
        for delivery in deliveries {
            if message_id(delivery).is_some_and(|id| !fresh.remove(&id)) {
                duplicates += 1;
                continue;
            }
            let (letter, place) = match &delivery.message {
                Ok(envelope) => partition.letter(envelope, death()),
                Err(malformed) => partition.malformed_letter(malformed),
            };
            aside.bury(letter, place);
        }
        partition.put_aside(&mut session, &mut aside).await?;
        let tags = tags(deliveries);
        subscription.acknowledge_within(&mut session, &tags).await?;
        session.commit().await?;
        crash_point!("dead_queue.committed");
        partition.note(0, duplicates, &aside);
        subscription.acknowledge(&tags).await?;
        Ok(true)
    }
}

fn death() -> Death {
    Death {
        reason: Reason::DeliveryLimit,
        error: "the broker delivered it too often without an acknowledgement and gave up on it"
            .to_owned(),
        attempts: 0,
    }
}
