use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use actix::prelude::*;
use tokio::sync::{Mutex, watch};

use super::operator::Wiring;
use super::posta::Running;
use super::relay::Relay;
use super::replay::Replayer;
use super::tree::{Starter, Tree};
use super::{Counters, Posta, Settings};
use crate::broker::database::DatabaseBroker;
use crate::broker::{Broker, BrokerDriver, BrokerKind, PartitionQueue};
use crate::consumer::{Announcement, Consumer, DeadQueue, HeldCounts, Mover, Partition};
use crate::layout::{Declaration, Generation, LayoutWatch, Seat};
use crate::lease::{Board, Keeper, MemberId, Resource};
use crate::message::SLOTS;
use crate::outbox::{Dispatcher, Outbox};
use crate::store::{Database, Store};
use crate::supervision::{Supervisor, Wake};
use crate::telemetry::Client;

/// The retry table is looked at less often than queues: what its owner puts there, it knows of.
const RETRY_LOOK_POLLS: u32 = 5;

/// A queue that is to be drained settles for this part of a lease's time.
const SETTLE_PART: u32 = 4;

/// What a runtime is made of, once everything has been checked.
pub(super) struct Parts<D: Database> {
    pub(super) store: D::Store,
    pub(super) broker: Broker,
    pub(super) consumers: Vec<Consumer<D>>,
    pub(super) settings: Settings,
}

/// The wakes of one process.
struct Wakes {
    outgoing: Wake,
    enqueued: Wake,
    filled: Wake,
}

impl<D: Database> Parts<D> {
    /// Spawns supervisors and children.
    pub(super) async fn spawn(self) -> Posta<D> {
        let Self {
            store,
            broker,
            consumers,
            settings,
        } = self;
        let member = MemberId::random();
        let outgoing = Wake::new();
        let wakes = Wakes {
            enqueued: Wake::relayed_by(&outgoing),
            filled: Wake::relayed_by(&outgoing),
            outgoing,
        };
        let driver = drive::<D>(&broker, &store, &settings, &wakes);
        let client = Client::of(&*driver, member);
        let outbox = Outbox::<D>::new(store.tables().clone())
            .payload_bytes_max(settings.payload_bytes_max)
            .client(client.clone());
        let counters = Arc::new(Counters::default());
        let mut tree = Tree::new(settings.arbiters);
        let lanes = Board::new(Resource::Lanes, member);
        let mut boards = vec![lanes.clone()];

        let by_slot = driver.capabilities().by_slot;
        let layouts: Vec<LayoutWatch> = consumers
            .iter()
            .map(|consumer| LayoutWatch::new(&consumer.name))
            .collect();
        let declarations: Vec<Declaration<D>> = consumers
            .iter()
            .zip(&layouts)
            .map(|(consumer, layout)| {
                let (name, types) = (&consumer.name, consumer.types());
                let types = Announcement::<D>::new(store.clone(), name, &types, !by_slot);
                Declaration::new(driver.clone(), name, types.into_types(), layout.clone())
            })
            .collect();

        let declared = declarations.iter().map(Declaration::done).collect();

        // Users first, keepers last: a keeper drains when its board is idle.
        let dispatchers = tree.supervisor();
        let policies = Arc::new(settings.dispatch.clone());
        let of = settings.arbiters.min(usize::from(SLOTS)) as u8;
        for index in 0..of {
            let dispatcher = Dispatcher::<D> {
                store: store.clone(),
                driver: driver.clone(),
                board: lanes.clone(),
                declarations: declarations.clone(),
                index,
                of,
                batch: settings.dispatch_batch,
                payload_bytes_max: settings.payload_bytes_max,
                policies: policies.clone(),
                poll_interval_max: settings.poll_interval_max,
                enqueued: wakes.enqueued.clone(),
                counters: counters.clone(),
                client: client.clone(),
                filled: wakes.filled.clone(),
            };
            tree.start(&dispatchers, format!("dispatcher {index}"), move |life| {
                dispatcher.clone().run(life)
            });
        }
        let keepers = tree.supervisor();
        let (members, members_seen) = watch::channel(0);
        let keeper = Keeper::<D> {
            store: store.clone(),
            board: lanes,
            member,
            count: SLOTS,
            seat: None,
            ttl: settings.lease_ttl,
            members,
        };
        start_keeper(&tree, &keepers, keeper);
        let names: Vec<String> = consumers
            .iter()
            .map(|consumer| consumer.name.clone())
            .collect();
        let mut wiring = Wiring {
            handlers: BTreeMap::new(),
            enqueued: wakes.enqueued.clone(),
            begun: Wake::new(),
            payload_bytes_max: settings.payload_bytes_max,
        };
        let alone: Arc<Mutex<()>> = Arc::default();
        for ((consumer, declaration), layout) in
            consumers.into_iter().zip(declarations).zip(layouts)
        {
            let first = Generation::first(consumer.partitions);
            let resource = Resource::partitions(consumer.name.as_str(), first);
            let board = Board::new(resource, member);
            boards.push(board.clone());
            let partitions = consumer.partitions;
            let supervisor = tree.supervisor();
            let (name, state) = (consumer.name.clone(), consumer.state.clone());
            let handlers = Arc::new(consumer.into_handlers(settings.retry));
            wiring.handlers.insert(name.clone(), handlers.clone());
            let template = Partition {
                store: store.clone(),
                driver: driver.clone(),
                board: board.clone(),
                member,
                queue: PartitionQueue {
                    consumer: name.clone(),
                    generation: first,
                    number: 0,
                },
                layout: layout.clone(),
                settle: settings.lease_ttl / SETTLE_PART,
                declaration: declaration.clone(),
                handlers: handlers.clone(),
                state: state.clone(),
                outbox: outbox.clone(),
                enqueued: wakes.enqueued.clone(),
                counters: counters.clone(),
                client: client.clone(),
                batch: settings.consume_batch,
                retry_look_interval: settings.poll_interval_max * RETRY_LOOK_POLLS,
                unknown_type_grace: settings.unknown_type_grace,
                held: HeldCounts::new(settings.held_max),
                alone: alone.clone(),
            };
            let staff = staff(
                tree.starter(&supervisor),
                template.clone(),
                settings.held_max,
            );
            staff(partitions);
            if !by_slot {
                let mover = Mover {
                    partition: template.clone(),
                };
                tree.start(&supervisor, format!("{name} layout"), move |life| {
                    mover.clone().run(life)
                });
            }
            if driver.capabilities().delivery_limit {
                let dead_queue = DeadQueue {
                    partition: template,
                };
                tree.start(&supervisor, format!("{name} dead queue"), move |life| {
                    dead_queue.clone().run(life)
                });
            }
            let keeper = Keeper::<D> {
                store: store.clone(),
                board,
                member,
                count: partitions,
                seat: Some(Seat {
                    store: store.clone(),
                    consumer: name.clone(),
                    wish: partitions,
                    watch: layout,
                    by_slot,
                    staff,
                }),
                ttl: settings.lease_ttl,
                // Whoever shares a consumer shares the lanes too: their keeper tells.
                members: watch::Sender::new(0),
            };
            start_keeper(&tree, &keepers, keeper);
        }
        let relays = tree.supervisor();
        let relay = Relay {
            store: store.clone(),
            outgoing: wakes.outgoing.clone(),
            incoming: vec![wakes.enqueued.clone(), wakes.filled.clone()],
            members: members_seen,
        };
        tree.start(&relays, "relay".to_owned(), move |life| {
            relay.clone().run(life)
        });
        let operations = tree.supervisor();
        let replayer = Replayer {
            store: store.clone(),
            begun: wiring.begun.clone(),
            enqueued: wakes.enqueued.clone(),
        };
        tree.start(&operations, "replayer".to_owned(), move |life| {
            replayer.clone().run(life)
        });
        Posta::new(
            store,
            outbox,
            wakes.enqueued,
            counters,
            names,
            wiring,
            Running {
                member,
                boards,
                declared,
                settings,
                registry: tree.registry,
                phase: tree.phase,
                supervisors: tree.supervisors,
                arbiters: tree.arbiters,
            },
        )
    }
}

fn drive<D: Database>(
    broker: &Broker,
    store: &D::Store,
    settings: &Settings,
    wakes: &Wakes,
) -> Arc<dyn BrokerDriver<D>> {
    match &broker.kind {
        BrokerKind::Database => Arc::new(
            DatabaseBroker::<D>::new(store.clone(), settings.poll_interval_max)
                .with_wake(wakes.filled.clone()),
        ),
        #[cfg(feature = "rabbitmq")]
        BrokerKind::RabbitMq(options) => {
            Arc::new(crate::broker::rabbitmq::RabbitMq::new((**options).clone()))
        }
    }
}

/// Starts a consumer's partition actors up to a number, those that are not there yet. Actors beyond
/// the layout's partitions idle.
fn staff<D: Database>(
    starter: Starter,
    template: Partition<D>,
    held_max: usize,
) -> Arc<dyn Fn(u8) + Send + Sync> {
    let started = AtomicU8::new(0);
    Arc::new(move |count| {
        for number in started.fetch_max(count, Ordering::SeqCst)..count {
            let mut partition = template.clone();
            partition.queue.number = number;
            partition.held = HeldCounts::new(held_max);
            let name = format!("{} {number}", partition.queue.consumer);
            starter.start(name, move |life| partition.clone().run(life));
        }
    })
}

fn start_keeper<D: Database>(tree: &Tree, keepers: &Addr<Supervisor>, keeper: Keeper<D>) {
    let name = format!("lease keeper of {}", keeper.board.resource().name());
    tree.start(keepers, name, move |life| keeper.clone().run(life));
}
