use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use super::shared::Shared;
use crate::broker::PartitionQueue;
use crate::consumer::{
    Announcement, Bound, Consumer, DeadQueue, Handlers, HeldCounts, Mover, Partition, State,
};
use crate::layout::{Declaration, Generation, LayoutWatch, Seat};
use crate::lease::{Board, Resource};
use crate::operations::liveness::{Kind, Subject, Subjects};
use crate::store::Database;
use crate::supervision::{Concern, Place, Progress, Tree};

/// The retry table is looked at less often than queues: what its owner puts there, it knows of.
const RETRY_LOOK_POLLS: u32 = 5;

/// A queue that is to be drained settles for this part of a lease's time.
const SETTLE_PART: u32 = 4;

/// One consumer of this process: what its actors are made of.
pub(super) struct Consuming<D: Database> {
    pub(super) name: String,
    pub(super) partitions: u8,
    pub(super) declaration: Declaration<D>,
    pub(super) layout: LayoutWatch,
    pub(super) board: Board,
    pub(super) handlers: Arc<Handlers<D>>,
    state: State,
}

impl<D: Database> Consuming<D> {
    pub(super) fn new(shared: &Shared<D>, consumer: Consumer<D>) -> Self {
        let (name, partitions) = (consumer.name.clone(), consumer.partitions);
        let layout = LayoutWatch::new(&name);
        let capabilities = shared.driver.capabilities();
        let bound = match (capabilities.by_slot, capabilities.provides) {
            (true, _) => Bound::TypeAlone,
            (false, true) => Bound::Layouts,
            (false, false) => Bound::Operator,
        };
        let types = Announcement::<D>::new(shared.store.clone(), &name, &consumer.types(), bound);
        let driver = shared.driver.clone();
        let resource = Resource::partitions(name.as_str(), Generation::first(partitions));
        Self {
            declaration: Declaration::new(driver, &name, types.into_types(), layout.clone()),
            board: Board::new(resource, shared.member),
            state: consumer.state.clone(),
            handlers: Arc::new(consumer.into_handlers(shared.settings.retry)),
            name,
            partitions,
            layout,
        }
    }

    /// Starts its partition actors, who moves its queues when their number changes, and who reads
    /// what the broker gave up on. They share the declaration and the broker's connection for
    /// consuming: a rebuild forgets both. Returns the part that this process has in the layout, with
    /// their concern.
    pub(super) fn start(&self, tree: &Tree, shared: &Shared<D>) -> (Concern, Seat<D>) {
        let (driver, declaration) = (shared.driver.clone(), self.declaration.clone());
        let concern = tree.concern(format!("consumer {}", self.name), move || {
            let (driver, declaration) = (driver.clone(), declaration.clone());
            async move {
                declaration.forget().await;
                driver.disconnect().await;
            }
        });
        let template = self.partition(tree, shared);
        let staff = Staff {
            concern: concern.clone(),
            subjects: shared.subjects.clone(),
            template: template.clone(),
            held_max: shared.settings.held_max,
            patience: self.handlers.deadline_max() + shared.settings.lease_ttl * 4,
            started: AtomicU8::new(0),
        };
        staff.grow_to(self.partitions);
        let by_slot = shared.driver.capabilities().by_slot;
        if !by_slot {
            self.start_mover(&concern, shared, (template.clone(), staff.patience));
        }
        if shared.driver.capabilities().delivery_limit {
            let dead_queue = DeadQueue {
                partition: template,
            };
            let name = format!("{} dead queue", self.name);
            concern.start(name, Place::Spread, move |life| {
                dead_queue.clone().run(life)
            });
        }
        let seat = Seat {
            store: shared.store.clone(),
            consumer: self.name.clone(),
            wish: self.partitions,
            watch: self.layout.clone(),
            by_slot,
            staff: Arc::new(move |count| staff.grow_to(count)),
        };
        (concern, seat)
    }

    /// Starts who moves its queues, and has it looked at.
    fn start_mover(
        &self,
        concern: &Concern,
        shared: &Shared<D>,
        (template, patience): (Partition<D>, Duration),
    ) {
        let child: Arc<str> = format!("{} layout", self.name).into();
        let progress = Progress::default();
        shared.subjects.add(Subject {
            concern: concern.clone(),
            child: child.clone(),
            progress: progress.clone(),
            board: self.board.clone(),
            kind: Kind::Mover { patience },
        });
        let mover = Mover {
            partition: Partition {
                progress,
                ..template
            },
        };
        concern.start(child, Place::Inner, move |life| mover.clone().run(life));
    }

    /// What each of its actors is made of.
    fn partition(&self, tree: &Tree, shared: &Shared<D>) -> Partition<D> {
        let settings = &shared.settings;
        Partition {
            child: format!("{} 0", self.name).into(),
            registry: tree.registry.clone(),
            progress: Progress::default(),
            store: shared.store.clone(),
            driver: shared.driver.clone(),
            board: self.board.clone(),
            member: shared.member,
            queue: PartitionQueue {
                consumer: self.name.clone(),
                generation: Generation::first(self.partitions),
                number: 0,
            },
            layout: self.layout.clone(),
            settle: settings.lease_ttl / SETTLE_PART,
            declaration: self.declaration.clone(),
            handlers: self.handlers.clone(),
            state: self.state.clone(),
            outbox: shared.outbox.clone(),
            enqueued: shared.wakes.enqueued.clone(),
            counters: shared.counters.clone(),
            client: shared.client.clone(),
            batch: settings.consume_batch,
            retry_look_interval: settings.poll_interval_max * RETRY_LOOK_POLLS,
            unknown_type_grace: settings.unknown_type_grace,
            held: HeldCounts::new(settings.held_max),
            alone: shared.alone.clone(),
        }
    }
}

/// A consumer's partition actors, as many as any layout has asked for: those beyond the layout in
/// use idle.
struct Staff<D: Database> {
    concern: Concern,
    subjects: Subjects,
    template: Partition<D>,
    held_max: usize,
    /// How long an actor may be at work without a step.
    patience: Duration,
    started: AtomicU8,
}

impl<D: Database> Staff<D> {
    /// Starts those that are not there yet.
    fn grow_to(&self, count: u8) {
        for number in self.started.fetch_max(count, Ordering::SeqCst)..count {
            let mut partition = self.template.clone();
            partition.child = format!("{} {number}", partition.queue.consumer).into();
            partition.progress = Progress::default();
            partition.queue.number = number;
            partition.held = HeldCounts::new(self.held_max);
            self.subjects.add(Subject {
                concern: self.concern.clone(),
                child: partition.child.clone(),
                progress: partition.progress.clone(),
                board: partition.board.clone(),
                kind: Kind::Partition {
                    queue: partition.queue.clone(),
                    layout: partition.layout.clone(),
                    patience: self.patience,
                },
            });
            self.concern
                .start(partition.child.clone(), Place::Spread, move |life| {
                    partition.clone().run(life)
                });
        }
    }
}
