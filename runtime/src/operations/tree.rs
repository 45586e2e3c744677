use std::sync::Arc;

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
    started: usize,
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
            started: 0,
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
    pub(super) fn start<F, B>(&mut self, supervisor: &Addr<Supervisor>, name: String, body: B)
    where
        F: Future<Output = Result<(), ChildError>> + 'static,
        B: Fn(Life) -> F + Send + Sync + 'static,
    {
        let arbiter = self.arbiters[1 + self.started % (self.arbiters.len() - 1)].handle();
        self.started += 1;
        let body: Body = Arc::new(move |life| body(life).boxed_local());
        // One message per child at start, before anything else can be in the mailbox: it is bounded
        // by the number of children.
        supervisor.do_send(Start(ChildSpec {
            name,
            arbiter,
            body,
        }));
    }
}
