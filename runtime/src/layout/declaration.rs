use std::collections::BTreeSet;
use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::LayoutWatch;
use crate::broker::{BrokerDriver, BrokerError, BrokerErrorKind, Topology};
use crate::message::MessageType;
use crate::store::{Database, Generation, Layout, LayoutStep};
use crate::supervision::crash_point;

/// After the broker has refused a topology, since what it has differs, it is not asked again for so
/// long: only an operator can change that.
const REFUSAL_PAUSE: Duration = Duration::from_secs(15);

/// How long is waited for the layout, which the database says. Without it nobody knows which queues
/// there are to be.
const LAYOUT_PATIENCE: Duration = Duration::from_secs(5);

/// Says which message types a consumer takes, of all versions of its processes, after having put
/// down those of this one if that may be done now.
pub(crate) type Types =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Announced, BrokerError>> + Send + Sync>;

/// The message types that a consumer takes.
pub(crate) struct Announced {
    pub(crate) types: Vec<MessageType>,
    /// Whether those of this process are among them. New ones wait while queues are being bound.
    pub(crate) complete: bool,
    /// The layout, with the epoch that new ones have begun.
    pub(crate) layout: Option<Layout>,
}

/// One consumer's queues and bindings, seen to once by whichever actor comes first, again after a
/// subscription failed (the queue may be gone), and again when the layout asks for others.
///
/// All actors share a refusal, too: however many partitions there are, the broker is asked four
/// times a minute.
pub(crate) struct Declaration<D: Database> {
    shared: Arc<Shared<D>>,
}

struct Shared<D: Database> {
    driver: Arc<dyn BrokerDriver<D>>,
    consumer: String,
    types: Types,
    layout: LayoutWatch,
    state: Mutex<State>,
    declared: SyncMutex<BTreeSet<Generation>>,
    done: watch::Sender<bool>,
}

#[derive(Default)]
enum State {
    #[default]
    Undeclared,
    Declared(Made),
    Refused(Plan, Refusal, Instant),
}

/// What was declared.
#[derive(Clone, Copy)]
struct Made {
    plan: Plan,
    /// Of the layout for which it was.
    epoch: i64,
    /// With all types of this process.
    complete: bool,
}

impl Made {
    /// Whether there is nothing to add. At rest each epoch is one of new types, or the first of its
    /// layout's rest: a change begins with the queues in use bound to all that was announced.
    fn serves(&self, layout: &Layout) -> bool {
        let all_types = match layout.step {
            LayoutStep::Binding { .. } => true,
            LayoutStep::Rest => self.complete && self.epoch >= layout.epoch,
            _ => self.complete,
        };
        self.plan == Plan::of(layout) && all_types
    }
}

/// Why something is not declared.
struct Refusal {
    error: BrokerError,
    /// Only a layout that is to come has been refused, and not the one in use.
    next: bool,
}

impl Refusal {
    fn of(error: BrokerError) -> Self {
        Self { error, next: false }
    }

    fn shared(&self) -> Self {
        Self {
            error: self.error.shared(),
            next: self.next,
        }
    }
}

/// Which queues there are to be.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Plan {
    /// The layout whose queues get what is published.
    bound: Generation,
    /// The layout whose queues are only emptied. Nobody binds them any more: what comes to them also
    /// comes to the others.
    leaving: Option<Generation>,
}

impl Plan {
    fn of(layout: &Layout) -> Self {
        match layout.next() {
            Some(next) => Self {
                bound: next,
                leaving: Some(layout.generation),
            },
            None => Self {
                bound: layout.generation,
                leaving: None,
            },
        }
    }
}

impl<D: Database> Declaration<D> {
    pub(crate) fn new(
        driver: Arc<dyn BrokerDriver<D>>,
        consumer: &str,
        types: Types,
        layout: LayoutWatch,
    ) -> Self {
        Self {
            shared: Arc::new(Shared {
                driver,
                consumer: consumer.to_owned(),
                types,
                layout,
                state: Mutex::default(),
                declared: SyncMutex::default(),
                done: watch::Sender::new(false),
            }),
        }
    }

    /// Declares if nobody has; others wait meanwhile.
    pub(crate) async fn ensure(&self) -> Result<(), BrokerError> {
        self.ensured().await.map_err(|refusal| refusal.error)
    }

    /// The same for who reads the queues in use: that those to come are refused (an operator has not
    /// made them yet) is no reason not to.
    pub(crate) async fn ensure_in_use(&self) -> Result<(), BrokerError> {
        match self.ensured().await {
            Err(refusal) if refusal.next => {
                self.shared.done.send_replace(true);
                Ok(())
            }
            ensured => ensured.map_err(|refusal| refusal.error),
        }
    }

    async fn ensured(&self) -> Result<(), Refusal> {
        let shared = &*self.shared;
        let mut state = shared.state.lock().await;
        let layout = shared.layout.known(LAYOUT_PATIENCE).await;
        let mut layout = layout.ok_or_else(|| Refusal::of(self.unknown()))?;
        match &*state {
            State::Declared(made) if made.serves(&layout) => {
                shared.layout.provide(layout.epoch);
                return Ok(());
            }
            State::Refused(refused, refusal, at)
                if *refused == Plan::of(&layout) && at.elapsed() < REFUSAL_PAUSE =>
            {
                return Err(refusal.shared());
            }
            State::Undeclared | State::Declared(_) | State::Refused(..) => {}
        }
        let mut announced = (shared.types)().await.map_err(Refusal::of)?;
        if let Some(newer) = announced.layout.take() {
            shared.layout.set(newer.clone());
            layout = newer;
        }
        let plan = Plan::of(&layout);
        let declared = self.declare(plan, announced.types).await;
        *state = match &declared {
            Ok(()) => {
                shared.layout.provide(layout.epoch);
                if announced.complete {
                    shared.done.send_replace(true);
                }
                State::Declared(Made {
                    plan,
                    epoch: layout.epoch,
                    complete: announced.complete,
                })
            }
            Err(refusal) if refusal.error.kind() == BrokerErrorKind::Topology => {
                State::Refused(plan, refusal.shared(), Instant::now())
            }
            // Whatever else it was, it can be over at the next try.
            Err(_) => State::Undeclared,
        };
        declared
    }

    async fn declare(&self, plan: Plan, types: Vec<MessageType>) -> Result<(), Refusal> {
        // Before, since it may be stopped in between, and after, since it may have been: what was
        // made late is to be removed again.
        self.note(plan);
        let made = self.make(plan, types).await;
        self.note(plan);
        made
    }

    async fn make(&self, plan: Plan, types: Vec<MessageType>) -> Result<(), Refusal> {
        let driver = &self.shared.driver;
        if let Some(leaving) = plan.leaving {
            let emptied = self.topology(leaving, Vec::new());
            driver.declare(&emptied).await.map_err(Refusal::of)?;
        }
        let bound = self.topology(plan.bound, types);
        driver.declare(&bound).await.map_err(|error| Refusal {
            next: plan.leaving.is_some() && error.kind() == BrokerErrorKind::Topology,
            error,
        })?;
        if plan.leaving.is_some() {
            crash_point!("layout.bound");
        }
        Ok(())
    }

    /// Takes the bindings of all types away from a layout's queues, at once.
    pub(crate) async fn unbind(&self, generation: Generation) -> Result<(), BrokerError> {
        let topology = self.topology(generation, Vec::new());
        self.shared.driver.unbind(&topology).await
    }

    /// A layout's queues, bound to these types.
    pub(crate) fn topology(&self, generation: Generation, types: Vec<MessageType>) -> Topology {
        Topology {
            consumer: self.shared.consumer.clone(),
            generation,
            types,
        }
    }

    /// The layouts whose queues this process has, or may have, made.
    pub(crate) fn declared(&self) -> Vec<Generation> {
        self.lock_declared().iter().copied().collect()
    }

    /// Says that the queues of a layout are gone.
    pub(crate) fn gone(&self, generation: Generation) {
        self.lock_declared().remove(&generation);
    }

    fn note(&self, plan: Plan) {
        let mut declared = self.lock_declared();
        declared.insert(plan.bound);
        declared.extend(plan.leaving);
    }

    fn lock_declared(&self) -> std::sync::MutexGuard<'_, BTreeSet<Generation>> {
        let declared = &self.shared.declared;
        declared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Turns true with the first success, and stays.
    pub(crate) fn done(&self) -> watch::Receiver<bool> {
        self.shared.done.subscribe()
    }

    /// Whether all types of this process are bound, as far as is known.
    pub(crate) async fn is_complete(&self) -> bool {
        let state = self.shared.state.lock().await;
        !matches!(&*state, State::Declared(made) if !made.complete)
    }

    /// Has it declared again before the next subscription.
    pub(crate) async fn forget(&self) {
        let mut state = self.shared.state.lock().await;
        if matches!(*state, State::Declared(_)) {
            *state = State::Undeclared;
        }
    }

    fn unknown(&self) -> BrokerError {
        let consumer = &self.shared.consumer;
        BrokerError::new(
            format!("provide the queues of the consumer {consumer:?}"),
            BrokerErrorKind::Unavailable,
        )
        .with_source("its layout is not known yet: the database has not said it")
    }
}

impl<D: Database> Clone for Declaration<D> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::Sqlite;
    use crate::broker::{Capabilities, PartitionQueue, Publisher, Subscription};

    /// A broker that refuses every declaration in one way, and counts them.
    struct Refusing {
        kind: BrokerErrorKind,
        asked: AtomicUsize,
    }

    impl BrokerDriver<Sqlite> for Refusing {
        fn capabilities(&self) -> Capabilities {
            unreachable!("only declares")
        }

        fn name(&self) -> &'static str {
            "refusing"
        }

        fn address(&self) -> String {
            String::new()
        }

        fn declare<'a>(&'a self, _: &'a Topology) -> BoxFuture<'a, Result<(), BrokerError>> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let error = BrokerError::new("provide the queue \"q.0\"", self.kind);
            Box::pin(async { Err(error.with_source("'quorum' is not 'classic'")) })
        }

        fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher<Sqlite>>, BrokerError>> {
            unreachable!("only declares")
        }

        fn subscribe<'a>(
            &'a self,
            _: &'a PartitionQueue,
        ) -> BoxFuture<'a, Result<Box<dyn Subscription<Sqlite>>, BrokerError>> {
            unreachable!("only declares")
        }
    }

    fn declaration(driver: &Arc<Refusing>) -> Declaration<Sqlite> {
        let types: Types = Arc::new(|| {
            Box::pin(async {
                Ok(Announced {
                    types: Vec::new(),
                    complete: true,
                    layout: None,
                })
            })
        });
        let layout = LayoutWatch::new("q");
        layout.set(Layout {
            generation: Generation::first(8),
            step: LayoutStep::Rest,
            epoch: 1,
            wishes: Vec::new(),
        });
        Declaration::new(driver.clone(), "q", types, layout)
    }

    async fn asked_in_a_minute(kind: BrokerErrorKind) -> usize {
        let driver = Arc::new(Refusing {
            kind,
            asked: AtomicUsize::new(0),
        });
        let declaration = declaration(&driver);
        for _ in 0..60 {
            for _partition in 0..8 {
                let error = declaration.ensure().await.expect_err("a refusal");
                assert_eq!(error.kind(), kind);
                let source = std::error::Error::source(&error).expect("a source");
                assert_eq!(source.to_string(), "'quorum' is not 'classic'");
                // What its actor does after a failure.
                declaration.forget().await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        driver.asked.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_topology_is_asked_for_four_times_a_minute_by_all_actors_together() {
        assert_eq!(asked_in_a_minute(BrokerErrorKind::Topology).await, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_declaration_is_not_done() {
        let driver = Arc::new(Refusing {
            kind: BrokerErrorKind::Unavailable,
            asked: AtomicUsize::new(0),
        });
        let declaration = declaration(&driver);
        declaration.ensure().await.expect_err("no broker");
        assert!(!*declaration.done().borrow());
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_is_not_there_is_asked_by_each_actor_at_each_try() {
        assert_eq!(asked_in_a_minute(BrokerErrorKind::Unavailable).await, 480);
    }
}
