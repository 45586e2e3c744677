use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;

use super::Fitness;
use super::Phase;
use super::root::Stable;
use super::supervisor::{Standing, Supervised, Supervisor, resting};

/// Has a supervisor end every child of its concern and start them all anew, with what they share
/// forgotten.
#[derive(Clone, Copy)]
pub(super) struct Rebuild {
    /// How long they rest before.
    pub(super) delay: Duration,
    /// Whether the concern has failed past every budget: a stable run is then to be reported.
    pub(super) failed: bool,
}

/// How far a rebuild is.
pub(super) enum Rebuilding {
    /// The root was asked.
    Asked,
    /// Children end.
    Ending(Rebuild),
    /// All have ended; what they share is being forgotten, and they rest.
    Resting,
}

/// How a rest ended.
pub(super) enum Resting {
    Over,
    Draining,
}

/// How long what children share may take to be forgotten: it is not to hold up a rebuild.
const FORGET_PATIENCE: Duration = Duration::from_secs(5);

impl Message for Rebuild {
    type Result = ();
}

impl Supervisor {
    /// Goes on once every child has ended.
    pub(super) fn go_on_rebuilding(&mut self, context: &mut Context<Self>) {
        let running = |standing: &Standing| matches!(standing, Standing::Running(_));
        if self.children.values().any(|child| running(&child.standing)) {
            return;
        }
        let Some(Rebuilding::Ending(order)) = &self.rebuilding else {
            return;
        };
        let Rebuild { delay, failed } = *order;
        self.rebuilding = Some(Rebuilding::Resting);
        self.tell_fitness();
        let (forget, phase) = (self.forget.clone(), self.phase.clone());
        let rest = async move {
            // What is not forgotten in time is found out to be stale by whoever uses it.
            let _ = tokio::time::timeout(FORGET_PATIENCE, forget()).await;
            resting(phase, delay).await
        };
        context.spawn(rest.into_actor(self).map(move |rested, actor, context| {
            actor.rebuilding = None;
            match rested {
                Resting::Over => actor.start_anew(failed, context),
                Resting::Draining => actor.tell_if_drained(),
            }
        }));
    }

    fn start_anew(&mut self, failed: bool, context: &mut Context<Self>) {
        self.registry.rebuilt(&self.concern);
        tracing::info!(concern = %self.concern, children = self.children.len(), "started anew");
        self.tell_fitness();
        let names: Vec<Arc<str>> = self.children.keys().cloned().collect();
        for name in names {
            if let Some(child) = self.children.get_mut(&name) {
                child.spent.forget();
                child.in_a_row = 0;
            }
            self.launch(&name, context);
        }
        if failed {
            self.report_stable_run(context);
        }
    }

    /// Has the concern on trial until nothing has failed for long enough.
    pub(super) fn try_out(&mut self, context: &mut Context<Self>) {
        let is_new = !self.trial.is_on();
        self.trial.begin(Instant::now());
        self.tell_fitness();
        if is_new {
            tracing::warn!(
                concern = %self.concern,
                "on trial: its leases are left to other processes, if there are any"
            );
            self.await_trial(context);
        }
    }

    fn await_trial(&self, context: &mut Context<Self>) {
        // As long as it takes at least; whatever fails or is started meanwhile makes it longer.
        context.run_later(self.trial.length(), |actor, context| {
            let running = |child: &Supervised| matches!(child.standing, Standing::Running(_));
            let all_run = actor.children.values().all(running);
            if all_run && actor.trial.is_passed(Instant::now()) {
                tracing::info!(concern = %actor.concern, "its trial is over");
                actor.tell_fitness();
            } else if *actor.phase.borrow() < Phase::Drain {
                actor.await_trial(context);
            }
        });
    }

    /// Tells how fit the concern is, if that has changed.
    fn tell_fitness(&self) {
        let fitness = match (&self.rebuilding, self.trial.is_on()) {
            (Some(Rebuilding::Resting), _) => Fitness::Resting,
            (_, true) => Fitness::OnTrial,
            (_, false) => Fitness::Fit,
        };
        self.registry.fitness(&self.concern, fitness);
        self.fitness
            .send_if_modified(|told| std::mem::replace(told, fitness) != fitness);
    }

    /// Tells the root once nothing has failed for long enough since now.
    fn report_stable_run(&mut self, context: &mut Context<Self>) {
        let failures = self.failures;
        context.run_later(self.pace.stable_after, move |actor, context| {
            if actor.rebuilding.is_some() || *actor.phase.borrow() >= Phase::Drain {
                return;
            }
            if actor.failures == failures {
                actor.root.do_send(Stable(actor.concern.clone()));
            } else {
                // Within its budget: it may run stably from now on.
                actor.report_stable_run(context);
            }
        });
    }
}

impl Handler<Rebuild> for Supervisor {
    type Result = ();

    fn handle(&mut self, order: Rebuild, context: &mut Self::Context) {
        let at_it = !matches!(self.rebuilding, None | Some(Rebuilding::Asked));
        if at_it || *self.phase.borrow() >= Phase::Drain {
            return;
        }
        self.rebuilding = Some(Rebuilding::Ending(order));
        let names: Vec<Arc<str>> = self.children.keys().cloned().collect();
        for name in names {
            match self
                .children
                .get_mut(&name)
                .map(|child| &mut child.standing)
            {
                Some(Standing::Running(_)) => {
                    self.end(&name, "its concern is rebuilt".to_owned(), context);
                }
                Some(standing @ Standing::Waiting(_)) => *standing = Standing::Down,
                _ => {}
            }
        }
        self.go_on_rebuilding(context);
    }
}
