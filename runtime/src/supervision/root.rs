use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use tokio::sync::watch;

use super::arbiters::{Arbiters, BEATS_MISSED_MAX};
use super::budget::Spent;
use super::lost::LostArbiters;
use super::rebuild::Rebuild;
use super::supervisor::Supervisor;
use super::{Pace, PastBudget, Phase, Registry};

/// A concern that the root is to look after.
pub(super) struct Adopt {
    pub(super) concern: Arc<str>,
    pub(super) supervisor: Addr<Supervisor>,
}

/// A concern's child has failed past its budget.
pub(super) struct Escalated {
    pub(super) concern: Arc<str>,
    pub(super) reason: String,
}

/// A concern that had failed runs stably.
pub(super) struct Stable(pub(super) Arc<str>);

/// The root of the tree: decides what becomes of a concern that is past its budget, and looks after
/// the arbiters.
pub(super) struct Root {
    pub(super) registry: Registry,
    pub(super) phase: watch::Sender<Phase>,
    pub(super) arbiters: Arbiters,
    pub(super) pace: Pace,
    pub(super) past_budget: PastBudget,
    /// Why the runtime ends itself, once it does.
    pub(super) ending: watch::Sender<Option<String>>,
    concerns: BTreeMap<Arc<str>, Adopted>,
    is_blocked: bool,
}

struct Adopted {
    supervisor: Addr<Supervisor>,
    rebuilds: Spent,
    in_a_row: u32,
}

impl Message for Adopt {
    type Result = ();
}

impl Message for Escalated {
    type Result = ();
}

impl Message for Stable {
    type Result = ();
}

impl Message for Beat {
    type Result = ();
}

impl Root {
    pub(super) fn new(
        registry: Registry,
        phase: watch::Sender<Phase>,
        arbiters: Arbiters,
        pace: Pace,
        past_budget: PastBudget,
        ending: watch::Sender<Option<String>>,
    ) -> Self {
        Self {
            registry,
            phase,
            arbiters,
            pace,
            past_budget,
            ending,
            concerns: BTreeMap::new(),
            is_blocked: false,
        }
    }

    /// Asks the arbiters whether they are alive, and has what lives on those that are not started
    /// elsewhere.
    fn beat(&mut self) {
        // In a drain nothing is started elsewhere: who comes back finishes, who does not is aborted.
        if *self.phase.borrow() >= Phase::Drain {
            return;
        }
        let lost = Arc::new(self.arbiters.beat());
        for lost in lost.iter() {
            tracing::error!(
                child = ?lost.child,
                "an arbiter does not answer: a handler never yields; its children move"
            );
        }
        if !lost.is_empty() {
            for concern in self.concerns.values() {
                concern.supervisor.do_send(LostArbiters(lost.clone()));
            }
        }
        let blocked = self.arbiters.blocked();
        let hopeless = blocked.iter().find(|blocked| blocked.is_hopeless);
        match hopeless {
            Some(blocked) if !self.is_blocked => {
                self.is_blocked = true;
                let child = blocked.child.as_deref().unwrap_or("nobody known");
                self.fail(format!("the arbiter of {child:?} stays blocked"));
            }
            Some(_) => {}
            None => self.is_blocked = false,
        }
    }

    /// The runtime has failed: what then happens is configured.
    fn fail(&mut self, reason: String) {
        tracing::error!(%reason, then = %self.past_budget, "the runtime has failed");
        if self.past_budget == PastBudget::Exit {
            Phase::Drain.advance(&self.phase);
            self.ending.send_if_modified(|ending| {
                let first = ending.is_none();
                ending.get_or_insert(reason);
                first
            });
        }
    }
}

impl Actor for Root {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        // A rest after each beat, no fixed rate: a process that was paused does not find beats that
        // it missed.
        let (every, root) = (self.pace.beat, context.address().downgrade());
        context.spawn(
            async move {
                loop {
                    tokio::time::sleep(every).await;
                    match root.upgrade() {
                        Some(root) if root.send(Beat).await.is_ok() => {}
                        _ => return,
                    }
                }
            }
            .into_actor(self),
        );
    }
}

struct Beat;

impl Handler<Beat> for Root {
    type Result = ();

    fn handle(&mut self, _: Beat, _: &mut Self::Context) {
        self.beat();
    }
}

impl Handler<Adopt> for Root {
    type Result = ();

    fn handle(
        &mut self,
        Adopt {
            concern,
            supervisor,
        }: Adopt,
        _: &mut Self::Context,
    ) {
        let adopted = Adopted {
            supervisor,
            rebuilds: Spent::default(),
            in_a_row: 0,
        };
        self.concerns.insert(concern, adopted);
    }
}

impl Handler<Escalated> for Root {
    type Result = ();

    fn handle(&mut self, Escalated { concern, reason }: Escalated, _: &mut Self::Context) {
        let Some(adopted) = self.concerns.get_mut(&concern) else {
            return;
        };
        let failed = !adopted
            .rebuilds
            .is_borne(self.pace.rebuilds, Instant::now());
        let delay = match failed {
            false => {
                adopted.in_a_row = adopted.in_a_row.saturating_add(1);
                self.pace.backoff.delay(adopted.in_a_row)
            }
            true => self.pace.backoff.cap(),
        };
        adopted.supervisor.do_send(Rebuild { delay, failed });
        if failed {
            self.registry.concern_failed(&concern, Some(reason.clone()));
            self.fail(format!("{concern}: {reason}"));
        }
    }
}

impl Handler<Stable> for Root {
    type Result = ();

    fn handle(&mut self, Stable(concern): Stable, _: &mut Self::Context) {
        if let Some(adopted) = self.concerns.get_mut(&concern) {
            adopted.in_a_row = 0;
            adopted.rebuilds.forget();
            self.registry.concern_failed(&concern, None);
            tracing::info!(%concern, "it has run stably: it has recovered");
        }
    }
}

/// How long between two beats if an arbiter is to count as blocked after `span`.
pub(super) fn beat_of(span: Duration) -> Duration {
    span / BEATS_MISSED_MAX
}
