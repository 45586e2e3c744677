use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::late::Late;
use super::partition::Partition;
use crate::broker::{BrokerError, BrokerErrorKind, PartitionQueue, QueueDepth};
use crate::layout::all_provide;
use crate::store::{
    Database, Generation, Layout, LayoutStep, LayoutStore, Session, Store, StoreError,
};
use crate::supervision::{ChildError, Doing, Life, crash_point};

/// Nothing may depend on being told: the layout is looked at this often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Takes the steps of a change of the layout that are the broker's: the body of a mover actor, one
/// per consumer and process, on a broker with queues.
///
/// Every process sees to the queues of a layout that is to come. Unbinding the former queues and
/// removing them is for the owner of partition 0, so that one process does; two would do no harm.
#[derive(Clone)]
pub(crate) struct Mover<D: Database> {
    pub(crate) partition: Partition<D>,
}

/// Since when queues of layouts that are not in use were found idle.
type Idle = HashMap<Generation, Instant>;

impl<D: Database> Mover<D> {
    /// Moves until the runtime drains.
    pub(crate) async fn run(self, life: Life) -> Result<(), ChildError> {
        let mut changes = self.partition.layout.changes();
        let mut idle = Idle::new();
        let mut failures = 0;
        let progress = &self.partition.progress;
        // Rests between looks are short, and looks all the same as far as anybody can see.
        progress.begin(Doing::Working);
        while !life.is_draining() {
            changes.mark_unchanged();
            let stepped = self.step(&life, &mut idle).await;
            progress.step();
            match stepped {
                Ok(pause) => {
                    failures = 0;
                    life.recovered();
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        _ = changes.changed() => {}
                        () = life.draining() => {}
                    }
                }
                Err(error) => {
                    failures += 1;
                    life.sit_out(failures, error.as_ref()).await;
                }
            }
        }
        Ok(())
    }

    /// Does what is its turn; how long until it is to look again.
    async fn step(&self, life: &Life, idle: &mut Idle) -> Result<Duration, ChildError> {
        let Some(layout) = self.partition.layout.current() else {
            return Ok(LOOK_INTERVAL);
        };
        let soon = self.partition.next_look();
        match layout.step {
            LayoutStep::Binding { next } => {
                self.partition.declaration.ensure().await?;
                if self.is_first() {
                    self.unbind(&layout, next).await?;
                }
                Ok(soon)
            }
            LayoutStep::Clearing { .. } => {
                if let (true, Some(former)) = (self.is_first(), layout.former())
                    && self.clear(life, former, idle).await?
                {
                    self.set(&layout, LayoutStep::Rest).await?;
                    crash_point!("layout.cleared");
                }
                Ok(soon)
            }
            LayoutStep::Rest => {
                let seen_to = self.see_to_types().await;
                self.remove_what_was_late(&layout).await?;
                Ok(if seen_to { LOOK_INTERVAL } else { soon })
            }
            LayoutStep::Draining { .. } | LayoutStep::Releasing { .. } => {
                let seen_to = self.see_to_types().await;
                Ok(if seen_to { LOOK_INTERVAL } else { soon })
            }
        }
    }

    /// Has types bound that others have announced meanwhile, or this process may announce since then;
    /// whether none are left. Partition actors have to do with the same queues and say what is
    /// wrong with them.
    async fn see_to_types(&self) -> bool {
        let ensured = self.partition.declaration.ensure().await;
        if let Err(error) = &ensured {
            tracing::debug!(error = error as &dyn std::error::Error, "not declared");
        }
        ensured.is_err() || self.partition.declaration.is_complete().await
    }

    /// Removes queues that this process may have made too late, having been stopped in the middle of
    /// it. At rest the former queues were found idle and are removed: what is in one that was made
    /// since has come to the queues in use as well.
    async fn remove_what_was_late(&self, layout: &Layout) -> Result<(), BrokerError> {
        let Partition {
            driver,
            declaration,
            ..
        } = &self.partition;
        for generation in declaration.declared() {
            if generation < layout.generation {
                let topology = declaration.topology(generation, Vec::new());
                driver.remove(&topology).await?;
                declaration.gone(generation);
            }
        }
        Ok(())
    }

    /// Whether this process owns partition 0 of the layout in use.
    fn is_first(&self) -> bool {
        self.partition.board.fence(0).is_some()
    }

    /// Unbinds the queues in use, once every process sees to those that are to come, and says so.
    async fn unbind(&self, seen: &Layout, next: u8) -> Result<(), ChildError> {
        let Partition {
            store,
            driver,
            declaration,
            queue,
            ..
        } = &self.partition;
        let mut session = store.begin_read().await?;
        let layout = store.layout(&mut session, &queue.consumer).await?;
        session.commit().await?;
        let all = layout.is_some_and(|layout| layout.epoch == seen.epoch && all_provide(&layout));
        if !all {
            return Ok(());
        }
        if !driver.capabilities().provides {
            return Err(waits_for_operator(&queue.consumer, seen, next).into());
        }
        declaration.unbind(seen.generation).await?;
        crash_point!("layout.unbound");
        let draining = LayoutStep::Draining { next, drained: 0 };
        self.set(seen, draining).await?;
        crash_point!("layout.unbinding_recorded");
        Ok(())
    }

    /// Sets the next step, unless the layout is another one meanwhile or somebody is at it: then the
    /// next look does it again, whatever it was.
    async fn set(&self, seen: &Layout, step: LayoutStep) -> Result<(), StoreError> {
        let Partition { store, queue, .. } = &self.partition;
        let mut session = store.begin().await?;
        match self.set_within(&mut session, seen, step).await {
            Ok(Some(layout)) => {
                session.commit().await?;
                tracing::debug!(consumer = %queue.consumer, step = step.as_str(), "a step is taken");
                self.partition.layout.set(layout);
                self.partition.layout.look();
                Ok(())
            }
            Ok(None) => {
                session.rollback().await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn set_within(
        &self,
        session: &mut Session<D>,
        seen: &Layout,
        step: LayoutStep,
    ) -> Result<Option<Layout>, StoreError> {
        let Partition { store, queue, .. } = &self.partition;
        let consumer = queue.consumer.as_str();
        let locked = store.lock_layout(session, consumer).await?;
        let Some(mut layout) = locked.filter(|layout| layout.epoch == seen.epoch) else {
            return Ok(None);
        };
        layout.step = step;
        layout.epoch = store
            .set_layout(session, consumer, layout.generation, step)
            .await?;
        Ok(Some(layout))
    }

    /// Removes the queues of a layout that has gone, once they were found idle for a while; what is
    /// in them nevertheless came late, and goes the inbox's way first. Whether they are gone.
    async fn clear(
        &self,
        life: &Life,
        generation: Generation,
        idle: &mut Idle,
    ) -> Result<bool, ChildError> {
        let Partition {
            driver,
            declaration,
            settle,
            ..
        } = &self.partition;
        let topology = declaration.topology(generation, Vec::new());
        let depths = driver.depths(&topology).await?;
        let there = || depths.iter().flatten();
        if there().next().is_none() {
            declaration.gone(generation);
            return Ok(true);
        }
        if !there().all(|depth| depth.is_idle()) {
            idle.remove(&generation);
            let deserted = |depth: &Option<QueueDepth>| {
                depth.is_some_and(|depth| depth.ready > 0 && depth.consumers == Some(0))
            };
            if let Some(late) = depths.iter().position(deserted) {
                // Should it be bound still, that ends here.
                declaration.unbind(generation).await?;
                let queue = topology.queues().nth(late);
                self.rescue(life, queue).await?;
            }
            return Ok(false);
        }
        let since = *idle.entry(generation).or_insert_with(Instant::now);
        if since.elapsed() < *settle {
            return Ok(false);
        }
        if driver.capabilities().provides {
            driver.remove(&topology).await?;
            crash_point!("layout.removed");
        }
        declaration.gone(generation);
        idle.remove(&generation);
        Ok(true)
    }

    async fn rescue(&self, life: &Life, queue: Option<PartitionQueue>) -> Result<(), BrokerError> {
        let Some(queue) = queue.filter(|_| self.partition.board.any_fence().is_some()) else {
            return Ok(());
        };
        let mut subscription = self.partition.driver.subscribe(&queue).await?;
        let late = Late {
            partition: &self.partition,
            queue: &queue,
        };
        let rescued = late.rescue(life, subscription.as_mut()).await;
        subscription.close().await;
        rescued
    }
}

/// Where an operator provides the queues, only an operator knows that the bindings have been moved.
fn waits_for_operator(consumer: &str, layout: &Layout, next: u8) -> BrokerError {
    let (from, to) = (layout.generation, layout.generation.number + 1);
    let operation = format!("move the bindings of the consumer {consumer:?}");
    BrokerError::new(operation, BrokerErrorKind::Topology).with_source(format!(
        "an operator provides its queues: bind {consumer}.{to}.0 to {consumer}.{to}.{}, then unbind \
         {consumer}.{}.0 to {consumer}.{}.{}, then say so by `posta layout bound {consumer}`",
        next - 1,
        from.number,
        from.number,
        from.partitions - 1,
    ))
}
