use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::prelude::*;
use futures_util::FutureExt as _;
use tokio::sync::watch;

use crate::supervision::{Body, ChildError, ChildSpec, Life, Phase, Registry, Start, Supervisor};

/// The supervisors, and where their children live.
pub(super) struct Tree {
    pub(super) registry: Registry,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) arbiters: Vec<Arbiter>,
    pub(super) supervisors: Vec<Addr<Supervisor>>,
    started: Arc<AtomicUsize>,
}

impl Tree {
    /// Makes the arbiters; nothing runs yet.
    pub(super) fn new(arbiters: usize) -> Self {
        Self {
            registry: Registry::default(),
            phase: watch::Sender::new(Phase::Run),
            // The first one is the supervisors' own.
            arbiters: (0..=arbiters).map(|_| Arbiter::new()).collect(),
            supervisors: Vec::new(),
            started: Arc::default(),
        }
    }

    /// Starts a supervisor for one concern.
    pub(super) fn supervisor(&mut self) -> Addr<Supervisor> {
        let (registry, phase) = (self.registry.clone(), self.phase.subscribe());
        let supervisor = Supervisor::start_in_arbiter(&self.arbiters[0].handle(), move |_| {
            Supervisor::new(registry, phase)
        });
        self.supervisors.push(supervisor.clone());
        supervisor
    }

    /// Starts a child on the next arbiter; `body` is called anew at every start.
    pub(super) fn start<F, B>(&self, supervisor: &Addr<Supervisor>, name: String, body: B)
    where
        F: Future<Output = Result<(), ChildError>> + 'static,
        B: Fn(Life) -> F + Send + Sync + 'static,
    {
        self.starter(supervisor).start(name, body);
    }

    /// Starts children of this supervisor at any time.
    pub(super) fn starter(&self, supervisor: &Addr<Supervisor>) -> Starter {
        Starter {
            supervisor: supervisor.clone(),
            arbiters: self.arbiters[1..].iter().map(Arbiter::handle).collect(),
            started: self.started.clone(),
        }
    }
}

/// Starts children of one supervisor, each on the next arbiter.
pub(super) struct Starter {
    supervisor: Addr<Supervisor>,
    arbiters: Vec<ArbiterHandle>,
    started: Arc<AtomicUsize>,
}

impl Starter {
    /// Starts a child; `body` is called anew at every start.
    pub(super) fn start<F, B>(&self, name: String, body: B)
    where
        F: Future<Output = Result<(), ChildError>> + 'static,
        B: Fn(Life) -> F + Send + Sync + 'static,
    {
        let started = self.started.fetch_add(1, Ordering::Relaxed);
        let arbiter = self.arbiters[started % self.arbiters.len()].clone();
        let body: Body = Arc::new(move |life| body(life).boxed_local());
        // One message per child: the mailbox is bounded by the number of children.
        self.supervisor.do_send(Start(ChildSpec {
            name,
            arbiter,
            body,
        }));
    }
}
