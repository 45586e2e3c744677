use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use actix::prelude::*;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use super::arbiters::Arbiters;
use super::root::{Adopt, Root, beat_of};
use super::supervisor::Supervisor;
use super::{Budget, Concern, Fitness, PastBudget, Phase, Registry, Trial, panic};
use crate::retry::Backoff;

/// The longest rest before the first restart; each failure in a row doubles it.
pub(crate) const RESTART_BACKOFF_BASE: Duration = Duration::from_millis(100);
/// The longest rest before any restart, and before a concern that has failed is tried again, unless
/// the configuration says otherwise.
pub const RESTART_BACKOFF_DEFAULT: Duration = Duration::from_secs(30);
/// Shortest longest rest: what fails at once is not to spin.
pub const RESTART_BACKOFF_MIN: Duration = Duration::from_secs(1);
/// Longest rest.
pub const RESTART_BACKOFF_MAX: Duration = Duration::from_secs(3600);
/// How long an actor has run when it has recovered, unless the configuration says otherwise.
pub const STABLE_AFTER_DEFAULT: Duration = Duration::from_secs(30);
/// Shortest stable run.
pub const STABLE_AFTER_MIN: Duration = Duration::from_secs(1);
/// Longest stable run.
pub const STABLE_AFTER_MAX: Duration = Duration::from_secs(3600);

const _: () = assert!(RESTART_BACKOFF_BASE.as_millis() < RESTART_BACKOFF_MIN.as_millis());

/// Before a child's restart, and before a concern's.
pub(crate) const RESTART_BACKOFF: Backoff =
    Backoff::new(RESTART_BACKOFF_BASE, RESTART_BACKOFF_DEFAULT);

/// How long a child that was told to end may take before it counts as ended.
const END_PATIENCE: Duration = Duration::from_secs(10);

/// Has what a concern's children share forgotten, when all of them have ended.
pub(crate) type Forget = Arc<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>;

/// What supervisors go by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) restarts: Budget,
    pub(crate) rebuilds: Budget,
    pub(crate) backoff: Backoff,
    pub(crate) stable_after: Duration,
    pub(crate) end_patience: Duration,
    /// Between two beats of the arbiters' pulse.
    pub(crate) beat: Duration,
}

impl Pace {
    /// With these budgets; an arbiter counts as blocked when it has not answered for `blocked`.
    pub(crate) fn new(restarts: Budget, rebuilds: Budget, blocked: Duration) -> Self {
        Self {
            restarts,
            rebuilds,
            backoff: RESTART_BACKOFF,
            stable_after: STABLE_AFTER_DEFAULT,
            end_patience: END_PATIENCE,
            beat: beat_of(blocked),
        }
    }
}

/// A root supervisor, its concerns, and where their children live. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Tree {
    pub(crate) registry: Registry,
    pub(crate) phase: watch::Sender<Phase>,
    pub(crate) arbiters: Arbiters,
    /// Why the runtime ends itself, once it does.
    pub(crate) ending: watch::Receiver<Option<String>>,
    root: Addr<Root>,
    pace: Pace,
    concerns: Arc<Mutex<Vec<Concern>>>,
}

impl Tree {
    /// Makes the arbiters and the root; no child runs yet.
    pub(crate) fn new(arbiters: usize, pace: Pace, past_budget: PastBudget) -> Self {
        panic::install();
        let (registry, phase) = (Registry::default(), watch::Sender::new(Phase::Run));
        let arbiters = Arbiters::new(arbiters);
        let (say, ending) = watch::channel(None);
        let root = Root::new(
            registry.clone(),
            phase.clone(),
            arbiters.clone(),
            pace,
            past_budget,
            say,
        );
        Self {
            root: Root::start_in_arbiter(&arbiters.own(), move |_| root),
            registry,
            phase,
            arbiters,
            ending,
            pace,
            concerns: Arc::default(),
        }
    }

    /// Starts a supervisor for one concern, of a name that is unique in the runtime.
    pub(crate) fn concern<F>(
        &self,
        name: impl Into<Arc<str>>,
        forget: impl Fn() -> F + Send + Sync + 'static,
    ) -> Concern
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let name = name.into();
        self.registry.concern(&name);
        let (fitness, seen) = watch::channel(Fitness::Fit);
        let supervisor = Supervisor {
            concern: name.clone(),
            registry: self.registry.clone(),
            phase: self.phase.subscribe(),
            arbiters: self.arbiters.clone(),
            pace: self.pace,
            forget: Arc::new(move || Box::pin(forget())),
            root: self.root.clone(),
            children: std::collections::BTreeMap::new(),
            rebuilding: None,
            failures: 0,
            trial: Trial::new(self.pace.stable_after),
            fitness,
            waiting: Vec::new(),
            incarnations: 0,
        };
        let supervisor = Supervisor::start_in_arbiter(&self.arbiters.own(), move |_| supervisor);
        self.root.do_send(Adopt {
            concern: name,
            supervisor: supervisor.clone(),
        });
        let concern = Concern {
            supervisor,
            arbiters: self.arbiters.clone(),
            fitness: seen,
        };
        let mut concerns = self.concerns.lock().unwrap_or_else(PoisonError::into_inner);
        concerns.push(concern.clone());
        concern
    }

    /// Its concerns so far.
    pub(crate) fn concerns(&self) -> Vec<Concern> {
        let concerns = self.concerns.lock().unwrap_or_else(PoisonError::into_inner);
        concerns.clone()
    }

    /// Whether the root and every supervisor are there.
    pub(crate) fn is_supervised(&self) -> bool {
        self.root.connected() && self.concerns().iter().all(Concern::is_supervised)
    }

    /// Waits until every child has finished; only sensible in a drain.
    pub(crate) async fn drained(&self) {
        for concern in self.concerns() {
            concern.drained().await;
        }
    }
}
