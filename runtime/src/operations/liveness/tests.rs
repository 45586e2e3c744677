//! Liveness, held against a broker and a database that say what a test wants.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;

use super::{Kind, Liveness, Subject, Subjects};
use crate::Sqlite;
use crate::broker::{
    BrokerDriver, BrokerError, BrokerErrorKind, Capabilities, PartitionQueue, Publisher,
    QueueDepth, Subscription, Topology,
};
use crate::layout::{Generation, LayoutWatch};
use crate::lease::{Board, Grant, MemberId, Resource};
use crate::message::{Envelope, MessageType};
use crate::store::{Connect, MigrationStore, Store, Tables};
use crate::supervision::{
    Budget, ChildStatus, Concern, Doing, Life, Pace, PastBudget, Phase, Place, Progress, Tree,
};

const PATIENCE: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(100);

/// A broker that only says how a queue is.
#[derive(Default)]
struct Queue {
    ready: AtomicU64,
    consumers: AtomicU32,
    /// 1 if it does not answer.
    silent: AtomicU32,
}

impl BrokerDriver<Sqlite> for Queue {
    fn capabilities(&self) -> Capabilities {
        unreachable!("is only looked at")
    }

    fn name(&self) -> &'static str {
        "queue"
    }

    fn address(&self) -> String {
        String::new()
    }

    fn declare<'a>(&'a self, _: &'a Topology) -> BoxFuture<'a, Result<(), BrokerError>> {
        unreachable!("is only looked at")
    }

    fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher<Sqlite>>, BrokerError>> {
        unreachable!("is only looked at")
    }

    fn subscribe<'a>(
        &'a self,
        _: &'a PartitionQueue,
    ) -> BoxFuture<'a, Result<Box<dyn Subscription<Sqlite>>, BrokerError>> {
        unreachable!("is only looked at")
    }

    fn queue_depth<'a>(
        &'a self,
        _: &'a PartitionQueue,
    ) -> BoxFuture<'a, Result<Option<QueueDepth>, BrokerError>> {
        Box::pin(async {
            if self.silent.load(Ordering::SeqCst) == 1 {
                return Err(BrokerError::new("look", BrokerErrorKind::Timeout));
            }
            Ok(Some(QueueDepth {
                ready: self.ready.load(Ordering::SeqCst),
                consumers: Some(self.consumers.load(Ordering::SeqCst)),
            }))
        })
    }
}

/// A runtime of one watched actor that believes to be doing something, and the one that watches.
struct Watched {
    tree: Tree,
    queue: Arc<Queue>,
    progress: Progress,
    board: Board,
    store: <Sqlite as crate::Database>::Store,
    _file: File,
}

/// A file of a database that is gone with it.
struct File(std::path::PathBuf);

impl Drop for File {
    fn drop(&mut self) {
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", self.0.display()));
        }
    }
}

const CHILD: &str = "watched";

async fn watched(kind: Kind, doing: Doing) -> Watched {
    let file = std::env::temp_dir().join(format!("posta-liveness-{}.db", MemberId::random()));
    let connect = Connect {
        tables: Tables::default(),
        connections_max: 4,
        timeout: PATIENCE,
        transaction_pooler: false,
    };
    let url = format!("sqlite://{}", file.display());
    let store = <Sqlite as crate::Database>::Store::connect(&url, &connect).expect("a store");
    store.migrate().await.expect("migrations");
    let plenty = Budget::new(1_000, Duration::from_secs(60));
    let pace = Pace {
        backoff: crate::retry::Backoff::new(Duration::from_millis(5), Duration::from_millis(20)),
        ..Pace::new(plenty, plenty, PATIENCE)
    };
    let tree = Tree::new(1, pace, PastBudget::StayUnhealthy);
    let concern = tree.concern("test", || async {});
    let progress = Progress::default();
    let believes = progress.clone();
    concern.start(CHILD, Place::Spread, move |life: Life| {
        believes.begin(doing);
        async move {
            life.draining().await;
            Ok(())
        }
    });
    let board = Board::new(Resource::Lanes, MemberId::random());
    let subjects = Subjects::default();
    until("it runs", || tree.registry.child(CHILD).is_some()).await;
    subjects.add(Subject {
        concern: concern.clone(),
        child: CHILD.into(),
        progress: progress.clone(),
        board: board.clone(),
        kind,
    });
    let queue = Arc::new(Queue::default());
    watch(&concern, &store, &queue, subjects);
    Watched {
        tree,
        queue,
        progress,
        board,
        store,
        _file: File(file),
    }
}

fn watch(
    concern: &Concern,
    store: &<Sqlite as crate::Database>::Store,
    queue: &Arc<Queue>,
    subjects: Subjects,
) {
    let liveness = Liveness::<Sqlite> {
        store: store.clone(),
        driver: queue.clone(),
        subjects,
        interval: INTERVAL,
    };
    concern.start("liveness", Place::Inner, move |life| {
        liveness.clone().run(life)
    });
}

impl Watched {
    fn status(&self) -> ChildStatus {
        self.tree.registry.child(CHILD).expect("a child")
    }

    async fn until_restarted(&self, reason: &str) {
        until("it was started again", || self.status().restarts > 0).await;
        let (error, _) = self.status().last_error.expect("why");
        assert!(error.starts_with(reason), "{error}");
    }

    /// How often everybody was looked at is not counted; that the clock of confirmations moves on
    /// so many times is.
    async fn looked(&self, times: u32) {
        let last = || {
            let liveness = self.tree.registry.child("liveness");
            liveness.and_then(|it| it.confirmed).map(|(_, at)| at)
        };
        for _ in 0..times {
            let before = last();
            until("everybody was looked at", || last() != before).await;
        }
    }

    async fn end(self) {
        Phase::Drain.advance(&self.tree.phase);
        tokio::time::timeout(PATIENCE, self.tree.drained())
            .await
            .expect("a drain");
        self.tree.arbiters.stop();
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < PATIENCE, "in vain waited until {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn partition(patience: Duration) -> Kind {
    Kind::Partition {
        queue: PartitionQueue {
            consumer: "c".to_owned(),
            generation: Generation::first(1),
            number: 0,
        },
        layout: LayoutWatch::new("c"),
        patience,
    }
}

#[actix_rt::test]
async fn a_subscription_that_the_broker_has_forgotten_is_made_anew() {
    let watched = watched(partition(PATIENCE), Doing::Waiting).await;
    watched
        .until_restarted("it waits for deliveries, and the broker knows of no subscription")
        .await;
    watched.queue.consumers.store(1, Ordering::SeqCst);
    until("it is well", || watched.status().confirmed.is_some()).await;
    watched.end().await;
}

#[actix_rt::test]
async fn messages_that_are_ready_and_do_not_come_are_a_failure_unless_it_takes_steps() {
    let watched = watched(partition(PATIENCE), Doing::Waiting).await;
    watched.queue.consumers.store(1, Ordering::SeqCst);
    watched.queue.ready.store(5, Ordering::SeqCst);
    // A busy one has messages ready all the time.
    for _ in 0..10 {
        watched.progress.step();
        watched.looked(1).await;
    }
    assert_eq!(watched.status().restarts, 0);
    watched
        .until_restarted("it waits for deliveries, messages are ready")
        .await;
    watched.end().await;
}

#[actix_rt::test]
async fn a_broker_that_does_not_answer_is_noticed_by_who_waits_for_it() {
    let watched = watched(partition(PATIENCE), Doing::Waiting).await;
    watched.queue.silent.store(1, Ordering::SeqCst);
    watched
        .until_restarted("it waits for deliveries, and the broker does not answer")
        .await;
    watched.end().await;
}

#[actix_rt::test]
async fn a_handler_at_work_is_no_difference_until_it_is_far_past_its_deadline() {
    let busy = watched(partition(PATIENCE), Doing::Working).await;
    busy.queue.ready.store(5, Ordering::SeqCst);
    busy.looked(8).await;
    assert_eq!(busy.status().restarts, 0);
    busy.end().await;
    let stuck = watched(partition(Duration::from_millis(300)), Doing::Working).await;
    stuck
        .until_restarted("it has been at work for longer than 300ms")
        .await;
    stuck.end().await;
}

#[actix_rt::test]
async fn a_mover_that_does_not_come_to_the_end_of_a_look_is_started_again() {
    let patience = Duration::from_millis(500);
    let mover = watched(Kind::Mover { patience }, Doing::Working).await;
    for _ in 0..8 {
        mover.progress.step();
        mover.looked(1).await;
    }
    assert_eq!(mover.status().restarts, 0);
    mover
        .until_restarted("it has been at work for longer than 500ms")
        .await;
    mover.end().await;
}

#[actix_rt::test]
async fn a_keeper_that_does_not_tick_while_the_database_answers_is_started_again() {
    let ttl = Duration::from_millis(500);
    let watched = watched(Kind::Keeper { ttl }, Doing::Nothing).await;
    let later = Instant::now() + PATIENCE;
    for _ in 0..8 {
        watched.board.set(&[], later);
        watched.looked(1).await;
    }
    assert_eq!(watched.status().restarts, 0);
    let (confirmed, _) = watched.status().confirmed.expect("it was confirmed");
    assert!(confirmed.starts_with("ticked "), "{confirmed}");
    watched
        .until_restarted("it has not ticked for a lease period")
        .await;
    watched.end().await;
}

#[actix_rt::test]
async fn a_dispatcher_that_leaves_the_same_row_first_is_started_again() {
    let patience = Duration::from_secs(3);
    let kind = Kind::Dispatcher {
        index: 0,
        of: 1,
        patience,
    };
    let watched = watched(kind, Doing::Waiting).await;
    // Without lanes there is nothing to hold it against.
    let message_type = MessageType::from_static("a.b").expect("a type");
    let envelope = Envelope::builder(message_type, "{}").build().expect("one");
    let mut session = watched.store.begin().await.expect("a transaction");
    let outbox = crate::Outbox::<Sqlite>::new(Tables::default());
    outbox
        .enqueue_envelopes(&mut session, &[envelope])
        .await
        .expect("a row");
    session.commit().await.expect("a commit");
    watched.looked(5).await;
    assert_eq!(watched.status().restarts, 0);
    let lanes: Vec<Grant> = (0..64).map(|number| Grant { number, epoch: 1 }).collect();
    watched.board.set(&lanes, Instant::now() + PATIENCE);
    for _ in 0..8 {
        watched.progress.step();
        watched.looked(1).await;
    }
    assert_eq!(watched.status().restarts, 0, "it settles rows");
    watched.progress.begin(Doing::Working);
    watched.looked(8).await;
    assert_eq!(watched.status().restarts, 0, "it waits for the broker");
    watched.progress.begin(Doing::Waiting);
    watched.until_restarted("row 1 of lane ").await;
    watched.end().await;
}
