use std::sync::Arc;

use super::shared::Shared;
use crate::broker::{Declaration, PartitionQueue, Topology};
use crate::consumer::{Announcement, Consumer, DeadQueue, Handlers, HeldCounts, Partition, State};
use crate::lease::{Board, Resource};
use crate::message::MessageType;
use crate::operations::liveness::{Kind, Subject};
use crate::store::Database;
use crate::supervision::{Concern, Place, Progress, Tree};

/// The retry table is looked at less often than queues: what its owner puts there, it knows of.
const RETRY_LOOK_POLLS: u32 = 5;

/// One consumer of this process: what its actors are made of.
pub(super) struct Consuming<D: Database> {
    pub(super) name: String,
    pub(super) partitions: u8,
    pub(super) declaration: Declaration<D>,
    pub(super) board: Board,
    pub(super) handlers: Arc<Handlers<D>>,
    state: State,
}

impl<D: Database> Consuming<D> {
    pub(super) fn new(shared: &Shared<D>, consumer: Consumer<D>) -> Self {
        let resource = Resource::Partitions(consumer.name.clone());
        Self {
            name: consumer.name.clone(),
            partitions: consumer.partitions,
            declaration: Declaration::new(shared.driver.clone(), topology(&consumer)),
            board: Board::new(resource, shared.member),
            state: consumer.state.clone(),
            handlers: Arc::new(consumer.into_handlers(shared.settings.retry)),
        }
    }

    /// Starts its partition actors, and who reads what the broker gave up on. They share the
    /// declaration and the broker's connection for consuming: a rebuild forgets both.
    pub(super) fn start(&self, tree: &Tree, shared: &Shared<D>) -> Concern {
        let (driver, declaration) = (shared.driver.clone(), self.declaration.clone());
        let concern = tree.concern(format!("consumer {}", self.name), move || {
            let (driver, declaration) = (driver.clone(), declaration.clone());
            async move {
                declaration.forget().await;
                driver.disconnect().await;
            }
        });
        let handlers = self.handlers.clone();
        let announcement = Announcement::new(shared.store.clone(), &self.name, handlers);
        for number in 0..self.partitions {
            let partition = self.partition(tree, shared, &announcement, number);
            shared.subjects.add(Subject {
                concern: concern.clone(),
                child: partition.child.clone(),
                progress: partition.progress.clone(),
                board: self.board.clone(),
                kind: Kind::Partition {
                    queue: partition.queue.clone(),
                    patience: self.handlers.deadline_max() + shared.settings.lease_ttl * 4,
                },
            });
            concern.start(partition.child.clone(), Place::Spread, move |life| {
                partition.clone().run(life)
            });
        }
        if shared.driver.capabilities().delivery_limit {
            let dead_queue = DeadQueue {
                partition: self.partition(tree, shared, &announcement, 0),
            };
            let name = format!("{} dead queue", self.name);
            concern.start(name, Place::Spread, move |life| {
                dead_queue.clone().run(life)
            });
        }
        concern
    }

    fn partition(
        &self,
        tree: &Tree,
        shared: &Shared<D>,
        announcement: &Announcement<D>,
        number: u8,
    ) -> Partition<D> {
        let settings = &shared.settings;
        Partition {
            child: format!("{} {number}", self.name).into(),
            registry: tree.registry.clone(),
            progress: Progress::default(),
            store: shared.store.clone(),
            driver: shared.driver.clone(),
            board: self.board.clone(),
            member: shared.member,
            queue: PartitionQueue {
                consumer: self.name.clone(),
                partitions: self.partitions,
                number,
            },
            declaration: self.declaration.clone(),
            announcement: announcement.clone(),
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

fn topology<D: Database>(consumer: &Consumer<D>) -> Topology {
    let types = consumer.handlings.keys();
    Topology {
        consumer: consumer.name.clone(),
        partitions: consumer.partitions,
        types: types
            .map(|name| MessageType::from_static(name).expect("the derive macro has checked it"))
            .collect(),
    }
}
