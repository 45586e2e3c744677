use std::time::{Duration, Instant};

use super::partition::{LEASE_LOOK_INTERVAL, Partition};
use crate::broker::{BrokerError, Subscription};
use crate::layout::all_drained;
use crate::lease::LeaseUse;
use crate::store::{Database, Layout, LayoutStep, LayoutStore, Session, Store, StoreError};
use crate::supervision::{Life, crash_point};

/// How often it is tried to write down that a partition is drained, while others are at the layout.
const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(25);

/// What was seen of a queue that is to be emptied.
#[derive(Default)]
pub(super) struct Calm {
    /// Since when it was found empty, each time.
    since: Option<Instant>,
    looked_at: Option<Instant>,
}

impl Calm {
    /// Something was delivered.
    pub(super) fn end(&mut self) {
        self.since = None;
    }
}

impl<D: Database> Partition<D> {
    /// Whether the layout wants the partition emptied, and it is not said to be yet.
    pub(super) fn is_to_drain(&self) -> bool {
        self.layout
            .drained(self.queue.generation, self.queue.number)
            == Some(false)
    }

    /// Whether its queue is drained: found empty, looked at again after the settling pause, and found
    /// empty still. The caller has nothing in hand, receives in between, and looks once more for what
    /// was delivered just before the last look.
    pub(super) async fn seems_drained(
        &self,
        subscription: &mut dyn Subscription<D>,
        calm: &mut Calm,
    ) -> Result<bool, BrokerError> {
        let now = Instant::now();
        let pause = self.settle / 2;
        if calm.looked_at.is_some_and(|at| now < at + pause) {
            return Ok(false);
        }
        calm.looked_at = Some(now);
        if !subscription.is_drained().await? {
            calm.since = None;
            return Ok(false);
        }
        let since = *calm.since.get_or_insert(now);
        Ok(now.duration_since(since) >= self.settle)
    }

    /// How long until a queue that is to be emptied is looked at again.
    pub(super) fn next_look(&self) -> Duration {
        self.settle / 4
    }

    /// Writes down that the partition is drained, under its lease; with the last one the leases are
    /// to be given back. What cannot be written is looked at anew.
    pub(super) async fn write_drained(&self, lease: &LeaseUse) -> Result<(), StoreError> {
        for _ in 0..LOCK_TRIES {
            if self.try_write_drained(lease).await? {
                break;
            }
            tokio::time::sleep(LOCK_PAUSE).await;
        }
        Ok(())
    }

    /// `false` if somebody is at the layout just now.
    async fn try_write_drained(&self, lease: &LeaseUse) -> Result<bool, StoreError> {
        let Some(seen) = self.layout.current() else {
            return Ok(true);
        };
        let consumer = self.queue.consumer.as_str();
        let mut session = self.store.begin().await?;
        let Some(mut layout) = self.store.lock_layout(&mut session, consumer).await? else {
            session.rollback().await;
            return Ok(false);
        };
        if layout.epoch != seen.epoch {
            session.rollback().await;
            return Ok(true);
        }
        let fence = lease.fence();
        let written = self
            .store
            .drained(&mut session, consumer, &fence, layout.epoch)
            .await?;
        if !written {
            session.rollback().await;
            lease.lost();
            return Ok(true);
        }
        self.with_drained(&mut session, &mut layout).await?;
        session.commit().await?;
        crash_point!("layout.drained");
        tracing::info!(
            consumer,
            layout = self.queue.generation.number,
            partition = self.queue.number,
            "a partition is drained"
        );
        let released = matches!(layout.step, LayoutStep::Releasing { .. });
        self.layout.set(layout);
        if released {
            self.layout.look();
        }
        Ok(true)
    }

    async fn with_drained(
        &self,
        session: &mut Session<D>,
        layout: &mut Layout,
    ) -> Result<(), StoreError> {
        let LayoutStep::Draining { next, mut drained } = layout.step else {
            return Ok(());
        };
        drained |= 1 << self.queue.number;
        layout.step = LayoutStep::Draining { next, drained };
        if all_drained(layout.generation, drained) {
            layout.step = LayoutStep::Releasing { next };
            layout.epoch = self
                .store
                .set_layout(
                    session,
                    &self.queue.consumer,
                    layout.generation,
                    layout.step,
                )
                .await?;
        }
        Ok(())
    }

    /// Handles what is due in the retry table, and takes no deliveries, until the lease ends: the
    /// partition is drained, and others are not yet.
    pub(super) async fn wait_for_release(&self, life: &Life, lease: &LeaseUse) {
        let mut changes = self.board.changes();
        loop {
            changes.hear();
            let next = self.run_due_through_outages(life, lease, true).await;
            let Some(next) = next.filter(|_| !life.is_draining() && lease.may_go_on()) else {
                return;
            };
            tokio::select! {
                () = tokio::time::sleep(next.min(LEASE_LOOK_INTERVAL)) => {}
                () = tokio::time::sleep(lease.remaining()) => {}
                () = changes.called() => {}
                () = life.draining() => return,
            }
        }
    }
}
