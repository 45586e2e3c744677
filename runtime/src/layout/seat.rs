use std::sync::Arc;
use std::time::Duration;

use super::LayoutWatch;
use super::advance::advance;
use crate::store::{
    Attendance, Database, Layout, LayoutStep, LayoutStore, LeaseStore, MemberId, Resource, Session,
    StoreError, Wish,
};
use crate::supervision::crash_point;

/// A process's seat among those that decide on a consumer's layout: what the lease keeper of its
/// partitions does with it, within each tick.
#[derive(Clone)]
pub(crate) struct Seat<D: Database> {
    pub(crate) store: D::Store,
    pub(crate) consumer: String,
    /// How many partitions this process is configured with.
    pub(crate) wish: u8,
    pub(crate) watch: LayoutWatch,
    /// Whether the broker keeps messages by slot: then there are no queues to move.
    pub(crate) by_slot: bool,
    /// Sees to it that this process has actors for so many partitions.
    pub(crate) staff: Arc<dyn Fn(u8) + Send + Sync>,
}

impl<D: Database> Seat<D> {
    /// Says that this process is there and what it wishes, and reads the layout.
    pub(crate) async fn attend(
        &self,
        session: &mut Session<D>,
        member: MemberId,
        ttl: Duration,
    ) -> Result<Attendance, StoreError> {
        let wish = Wish {
            member,
            partitions: self.wish,
            epoch: self.watch.provided(),
        };
        self.store.attend(session, &self.consumer, wish, ttl).await
    }

    /// The leases of the layout in use.
    pub(crate) fn resource(&self, layout: &Layout) -> Resource {
        Resource::partitions(self.consumer.as_str(), layout.generation)
    }

    /// Takes the keeper's next step, if it is its turn and nobody else is at it; the layout after it.
    pub(crate) async fn advance(
        &self,
        session: &mut Session<D>,
        seen: &Layout,
    ) -> Result<Option<Layout>, StoreError> {
        // Mostly there is nothing to do, and nothing is locked for it.
        if advance(seen, self.by_slot, false).is_none() {
            return Ok(None);
        }
        let (store, consumer) = (&self.store, self.consumer.as_str());
        let Some(mut layout) = store.lock_layout(session, consumer).await? else {
            return Ok(None);
        };
        let owners = store.owners(session, &self.resource(&layout)).await?;
        let leased = owners.iter().any(|(_, owner)| owner.is_some());
        let Some((generation, step)) = advance(&layout, self.by_slot, leased) else {
            return Ok(None);
        };
        layout.epoch = store
            .set_layout(session, consumer, generation, step)
            .await?;
        (layout.generation, layout.step) = (generation, step);
        Ok(Some(layout))
    }

    /// Takes over what is committed.
    pub(crate) fn committed(&self, layout: Layout, advanced: bool) {
        if advanced {
            match layout.step {
                LayoutStep::Binding { .. } | LayoutStep::Releasing { .. } => {
                    crash_point!("layout.begun");
                }
                _ => crash_point!("layout.switched"),
            }
        }
        (self.staff)(layout.generation.partitions);
        self.watch.set(layout);
    }
}
