use std::sync::Arc;

use actix::prelude::*;
use futures_util::FutureExt as _;
use tokio::sync::watch;

use super::posta::Running;
use super::relay::Relay;
use super::{Counters, Posta, Settings};
use crate::broker::database::DatabaseBroker;
use crate::broker::{Broker, BrokerDriver, BrokerKind, Declaration, PartitionQueue, Topology};
use crate::consumer::{Consumer, Partition};
use crate::lease::{Board, Keeper, MemberId, Resource};
use crate::message::{MessageType, SLOTS};
use crate::outbox::{Dispatcher, Outbox};
use crate::store::{Database, Store};
use crate::supervision::{
    Body, ChildError, ChildSpec, Life, Phase, Registry, Start, Supervisor, Wake,
};
use crate::telemetry::Client;

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

        let declarations: Vec<Declaration<D>> = consumers
            .iter()
            .map(|consumer| Declaration::new(driver.clone(), topology(consumer)))
            .collect();

        // Users first, keepers last: a keeper drains when its board is idle.
        let dispatchers = tree.supervisor();
        let of = settings.arbiters.min(usize::from(SLOTS)) as u8;
        for index in 0..of {
            let dispatcher = DispatcherParts {
                store: store.clone(),
                driver: driver.clone(),
                board: lanes.clone(),
                declarations: declarations.clone(),
                counters: counters.clone(),
                client: client.clone(),
                enqueued: wakes.enqueued.clone(),
                filled: wakes.filled.clone(),
                settings: settings.clone(),
                index,
                of,
            };
            tree.start(&dispatchers, format!("dispatcher {index}"), move |life| {
                dispatcher.make().run(life)
            });
        }
        let keepers = tree.supervisor();
        let (members, members_seen) = watch::channel(0);
        start_keeper::<D>(
            &mut tree, &keepers, &store, &lanes, member, SLOTS, &settings, members,
        );
        let names: Vec<String> = consumers
            .iter()
            .map(|consumer| consumer.name.clone())
            .collect();
        for (consumer, declaration) in consumers.into_iter().zip(declarations) {
            let board = Board::new(Resource::Partitions(consumer.name.clone()), member);
            boards.push(board.clone());
            let partitions = consumer.partitions;
            let supervisor = tree.supervisor();
            let actors = PartitionParts {
                store: store.clone(),
                driver: driver.clone(),
                board: board.clone(),
                outbox: outbox.clone(),
                enqueued: wakes.enqueued.clone(),
                counters: counters.clone(),
                client: client.clone(),
                settings: settings.clone(),
                declaration,
                handlers: Arc::new(consumer.handlers),
                state: consumer.state,
                name: consumer.name.clone(),
                partitions,
            };
            for number in 0..partitions {
                let actors = actors.clone();
                tree.start(
                    &supervisor,
                    format!("{} {number}", consumer.name),
                    move |life| actors.make(number).run(life),
                );
            }
            let (members, _) = watch::channel(0);
            start_keeper::<D>(
                &mut tree, &keepers, &store, &board, member, partitions, &settings, members,
            );
        }
        let relays = tree.supervisor();
        let (relay_store, incoming) = (
            store.clone(),
            vec![wakes.enqueued.clone(), wakes.filled.clone()],
        );
        let outgoing = wakes.outgoing.clone();
        tree.start(&relays, "relay".to_owned(), move |life| {
            let relay = Relay {
                store: relay_store.clone(),
                outgoing: outgoing.clone(),
                incoming: incoming.clone(),
                members: members_seen.clone(),
            };
            relay.run(life)
        });
        Posta::new(
            store,
            outbox,
            wakes.enqueued,
            counters,
            names,
            Running {
                member,
                boards,
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
            Arc::new(crate::broker::rabbitmq::RabbitMq::new(options.clone()))
        }
    }
}

fn topology<D: Database>(consumer: &Consumer<D>) -> Topology {
    let types = consumer.handlers.keys();
    Topology {
        consumer: consumer.name.clone(),
        partitions: consumer.partitions,
        types: types
            .map(|name| MessageType::from_static(name).expect("the derive macro has checked it"))
            .collect(),
    }
}

#[allow(clippy::too_many_arguments, reason = "each is one part of a keeper")]
fn start_keeper<D: Database>(
    tree: &mut Tree,
    keepers: &Addr<Supervisor>,
    store: &D::Store,
    board: &Board,
    member: MemberId,
    count: u8,
    settings: &Settings,
    members: watch::Sender<usize>,
) {
    let (store, board, ttl) = (store.clone(), board.clone(), settings.lease_ttl);
    let name = format!("lease keeper of {}", board.resource().name());
    tree.start(keepers, name, move |life| {
        let keeper = Keeper::<D> {
            store: store.clone(),
            board: board.clone(),
            member,
            count,
            ttl,
            members: members.clone(),
        };
        keeper.run(life)
    });
}

/// The supervisors, and where their children live.
struct Tree {
    registry: Registry,
    phase: watch::Sender<Phase>,
    arbiters: Vec<Arbiter>,
    supervisors: Vec<Addr<Supervisor>>,
    started: usize,
}

impl Tree {
    fn new(arbiters: usize) -> Self {
        Self {
            registry: Registry::default(),
            phase: watch::Sender::new(Phase::Run),
            // The first one is the supervisors' own.
            arbiters: (0..=arbiters).map(|_| Arbiter::new()).collect(),
            supervisors: Vec::new(),
            started: 0,
        }
    }

    fn supervisor(&mut self) -> Addr<Supervisor> {
        let (registry, phase) = (self.registry.clone(), self.phase.subscribe());
        let supervisor = Supervisor::start_in_arbiter(&self.arbiters[0].handle(), move |_| {
            Supervisor::new(registry, phase)
        });
        self.supervisors.push(supervisor.clone());
        supervisor
    }

    /// Starts a child on the next arbiter; `body` is called anew at every start.
    fn start<F, B>(&mut self, supervisor: &Addr<Supervisor>, name: String, body: B)
    where
        F: Future<Output = Result<(), ChildError>> + 'static,
        B: Fn(Life) -> F + Send + Sync + 'static,
    {
        let arbiter = self.arbiters[1 + self.started % (self.arbiters.len() - 1)].handle();
        self.started += 1;
        let body: Body = Arc::new(move |life| body(life).boxed_local());
        // One message per child at start, before anything else can be in the mailbox: it is bounded by the number of children.
        supervisor.do_send(Start(ChildSpec {
            name,
            arbiter,
            body,
        }));
    }
}

struct DispatcherParts<D: Database> {
    store: D::Store,
    driver: Arc<dyn BrokerDriver<D>>,
    board: Board,
    declarations: Vec<Declaration<D>>,
    counters: Arc<Counters>,
    client: Client,
    enqueued: Wake,
    filled: Wake,
    settings: Settings,
    index: u8,
    of: u8,
}

impl<D: Database> DispatcherParts<D> {
    fn make(&self) -> Dispatcher<D> {
        Dispatcher {
            store: self.store.clone(),
            driver: self.driver.clone(),
            board: self.board.clone(),
            declarations: self.declarations.clone(),
            index: self.index,
            of: self.of,
            batch: self.settings.dispatch_batch,
            payload_bytes_max: self.settings.payload_bytes_max,
            poll_interval_max: self.settings.poll_interval_max,
            enqueued: self.enqueued.clone(),
            counters: self.counters.clone(),
            client: self.client.clone(),
            filled: self.filled.clone(),
        }
    }
}

struct PartitionParts<D: Database> {
    store: D::Store,
    driver: Arc<dyn BrokerDriver<D>>,
    board: Board,
    outbox: Outbox<D>,
    enqueued: Wake,
    counters: Arc<Counters>,
    client: Client,
    settings: Settings,
    declaration: Declaration<D>,
    handlers: Arc<std::collections::BTreeMap<&'static str, crate::consumer::Handler<D>>>,
    state: crate::consumer::State,
    name: String,
    partitions: u8,
}

impl<D: Database> Clone for PartitionParts<D> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            driver: self.driver.clone(),
            board: self.board.clone(),
            outbox: self.outbox.clone(),
            enqueued: self.enqueued.clone(),
            counters: self.counters.clone(),
            client: self.client.clone(),
            settings: self.settings.clone(),
            declaration: self.declaration.clone(),
            handlers: self.handlers.clone(),
            state: self.state.clone(),
            name: self.name.clone(),
            partitions: self.partitions,
        }
    }
}

impl<D: Database> PartitionParts<D> {
    fn make(&self, number: u8) -> Partition<D> {
        let queue = PartitionQueue {
            consumer: self.name.clone(),
            partitions: self.partitions,
            number,
        };
        Partition {
            store: self.store.clone(),
            driver: self.driver.clone(),
            board: self.board.clone(),
            queue,
            declaration: self.declaration.clone(),
            handlers: self.handlers.clone(),
            state: self.state.clone(),
            outbox: self.outbox.clone(),
            enqueued: self.enqueued.clone(),
            counters: self.counters.clone(),
            client: self.client.clone(),
            batch: self.settings.consume_batch,
            backoff: self.settings.retry_backoff,
            unknown_type_grace: self.settings.unknown_type_grace,
        }
    }
}
