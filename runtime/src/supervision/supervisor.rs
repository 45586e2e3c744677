use std::collections::BTreeMap;
use std::time::Duration;

use actix::prelude::*;
use tokio::sync::{oneshot, watch};

use super::child::{Body, ChildActor, Ended, Life, Outcome};
use super::{Phase, Registry};
use crate::retry::Backoff;

/// A child that has run for this long has recovered: its next failure is a first one.
const STABLE_AFTER: Duration = Duration::from_secs(30);

/// A child to supervise.
pub(crate) struct Start(pub(crate) ChildSpec);

impl Message for Start {
    type Result = ();
}

/// What a child is made of, again at every restart.
pub(crate) struct ChildSpec {
    /// Its name in registry and logs, unique in the runtime.
    pub(crate) name: String,
    /// Where it lives.
    pub(crate) arbiter: ArbiterHandle,
    /// What it does.
    pub(crate) body: Body,
}

/// Asks to be told when every child has finished; only sensible once the phase has left `Run`.
pub(crate) struct Drained(pub(crate) oneshot::Sender<()>);

impl Message for Drained {
    type Result = ();
}

/// Starts one concern's children, and starts those again that fail.
pub(crate) struct Supervisor {
    registry: Registry,
    phase: watch::Receiver<Phase>,
    backoff: Backoff,
    children: BTreeMap<String, Supervised>,
    waiting: Vec<oneshot::Sender<()>>,
}

struct Supervised {
    spec: ChildSpec,
    /// Failures in a row, without a stable run between them.
    failures: u32,
    finished: bool,
}

impl Supervisor {
    pub(crate) fn new(registry: Registry, phase: watch::Receiver<Phase>) -> Self {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        Self {
            registry,
            phase,
            backoff,
            children: BTreeMap::new(),
            waiting: Vec::new(),
        }
    }

    fn launch(&self, name: &str, supervisor: Recipient<Ended>) {
        let Some(child) = self.children.get(name) else {
            return;
        };
        self.registry.started(name);
        let life = Life::new(name, self.registry.clone(), self.phase.clone());
        let body = child.spec.body.clone();
        let actor = ChildActor {
            life,
            body,
            supervisor,
        };
        ChildActor::start_in_arbiter(&child.spec.arbiter, move |_| actor);
    }

    fn finish(&mut self, name: &str) {
        if let Some(child) = self.children.get_mut(name) {
            child.finished = true;
            self.registry.drained(name);
        }
        if self.children.values().all(|child| child.finished) {
            // A receiver that is gone no longer wants to know.
            for waiting in self.waiting.drain(..) {
                let _ = waiting.send(());
            }
        }
    }
}

impl Actor for Supervisor {
    type Context = Context<Self>;
}

impl Handler<Start> for Supervisor {
    type Result = ();

    fn handle(&mut self, Start(spec): Start, context: &mut Self::Context) {
        let name = spec.name.clone();
        self.children.insert(
            name.clone(),
            Supervised {
                spec,
                failures: 0,
                finished: false,
            },
        );
        self.launch(&name, context.address().recipient());
    }
}

impl Handler<Ended> for Supervisor {
    type Result = ();

    fn handle(&mut self, ended: Ended, context: &mut Self::Context) {
        let Ended {
            name,
            outcome,
            ran_for,
        } = ended;
        let error = match outcome {
            Outcome::Finished if *self.phase.borrow() >= Phase::Drain => return self.finish(&name),
            Outcome::Finished => "ended before it was told to".to_owned(),
            Outcome::Failed(error) => error,
            Outcome::Panicked(text) => format!("panicked: {text}"),
        };
        self.registry.failed(&name, error.clone());
        if *self.phase.borrow() >= Phase::Drain {
            tracing::warn!(child = %name, %error, "a child failed while draining");
            return self.finish(&name);
        }
        let Some(child) = self.children.get_mut(&name) else {
            return;
        };
        child.failures = if ran_for >= STABLE_AFTER {
            1
        } else {
            child.failures.saturating_add(1)
        };
        let delay = self.backoff.delay(child.failures);
        tracing::warn!(
            child = %name,
            %error,
            failures = child.failures,
            delay_ms = delay.as_millis() as u64,
            "a child failed and is started again"
        );
        let mut phase = self.phase.clone();
        let wait = async move {
            let draining = phase.wait_for(|phase| *phase >= Phase::Drain);
            tokio::time::timeout(delay, draining).await.is_err()
        };
        context.spawn(wait.into_actor(self).map(move |start, actor, context| {
            if start {
                actor.launch(&name, context.address().recipient());
            } else {
                actor.finish(&name);
            }
        }));
    }
}

impl Handler<Drained> for Supervisor {
    type Result = ();

    fn handle(&mut self, Drained(waiting): Drained, _: &mut Self::Context) {
        if self.children.values().all(|child| child.finished) {
            let _ = waiting.send(());
        } else {
            self.waiting.push(waiting);
        }
    }
}
