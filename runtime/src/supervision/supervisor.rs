use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use tokio::sync::{oneshot, watch};

use super::arbiters::Arbiters;
use super::budget::Spent;
use super::child::{Body, ChildActor, Ended, Outcome};
use super::fitness::FAILURES_FIT_MAX;
use super::life::Order;
use super::rebuild::{Rebuilding, Resting};
use super::root::{Escalated, Root};
use super::{Fitness, Forget, Life, Pace, Phase, Registry, Trial};

/// How many stable runs one that was found dead must have run to have recovered in between: how long
/// it was dead is not known, and it takes some looks to be found.
const DEAD_RUN_PART: u32 = 4;

/// A child to supervise, from now on.
pub(super) struct Start(pub(super) ChildSpec);

/// What a child is made of, again at every restart.
pub(super) struct ChildSpec {
    /// Its name in registry and logs, unique in the runtime.
    pub(super) name: Arc<str>,
    /// Which of the arbiters it lives on; 0 is the supervisors' own.
    pub(super) place: usize,
    /// What it does.
    pub(super) body: Body,
}

/// An order to one child.
pub(super) struct Tell {
    pub(super) name: Arc<str>,
    pub(super) order: Order,
}

/// Asks to be told when every child has finished; only sensible once the phase has left `Run`.
pub(super) struct Drained(pub(super) oneshot::Sender<()>);

/// Starts one concern's children, and starts those again that fail.
pub(super) struct Supervisor {
    pub(super) concern: Arc<str>,
    pub(super) registry: Registry,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) arbiters: Arbiters,
    pub(super) pace: Pace,
    pub(super) forget: Forget,
    pub(super) root: Addr<Root>,
    pub(super) children: BTreeMap<Arc<str>, Supervised>,
    pub(super) rebuilding: Option<Rebuilding>,
    /// Failures of all children so far: one that stays the same is a stable run.
    pub(super) failures: u64,
    /// While children fail in a row.
    pub(super) trial: Trial,
    /// Whether the concern does its work, told to those who keep its leases.
    pub(super) fitness: watch::Sender<Fitness>,
    pub(super) waiting: Vec<oneshot::Sender<()>>,
    pub(super) incarnations: u64,
}

pub(super) struct Supervised {
    spec: ChildSpec,
    pub(super) standing: Standing,
    /// Failures in a row, without a stable run between them.
    pub(super) in_a_row: u32,
    pub(super) spent: Spent,
}

/// Where a child stands.
pub(super) enum Standing {
    /// This incarnation runs.
    Running(Incarnation),
    /// It is started again after a backoff; the number tells which wait it is.
    Waiting(u64),
    /// It failed past its budget, or its concern is being rebuilt: it is started with the others.
    Down,
    /// It has finished, for good.
    Finished,
}

pub(super) struct Incarnation {
    pub(super) number: u64,
    pub(super) seat: u64,
    started: Instant,
    pub(super) orders: watch::Sender<Order>,
}

impl Message for Start {
    type Result = ();
}

impl Message for Tell {
    type Result = ();
}

impl Message for Drained {
    type Result = ();
}

impl Supervisor {
    /// Starts a child's next incarnation, on whichever arbiter is at its place now.
    pub(super) fn launch(&mut self, name: &Arc<str>, context: &Context<Self>) {
        self.incarnations += 1;
        let number = self.incarnations;
        let Some(child) = self.children.get_mut(name) else {
            return;
        };
        self.registry.started(name);
        self.trial.begin_anew(Instant::now());
        let (arbiter, pulse) = self.arbiters.at(child.spec.place);
        let orders = watch::Sender::new(Order::Run);
        let actor = ChildActor {
            life: Life::new(
                name,
                self.registry.clone(),
                self.phase.clone(),
                orders.subscribe(),
            ),
            incarnation: number,
            body: child.spec.body.clone(),
            pulse: pulse.clone(),
            supervisor: context.address().recipient(),
        };
        child.standing = Standing::Running(Incarnation {
            number,
            seat: pulse.seat,
            started: Instant::now(),
            orders,
        });
        ChildActor::start_in_arbiter(&arbiter, move |_| actor);
    }

    /// Tells a child's incarnation to end, and sees to it that it counts as ended if it does not:
    /// what it holds is then dropped whenever its thread gets to it.
    pub(super) fn end(&mut self, name: &Arc<str>, reason: String, context: &mut Context<Self>) {
        let Some(Standing::Running(incarnation)) = self.children.get(name).map(|it| &it.standing)
        else {
            return;
        };
        let number = incarnation.number;
        incarnation.orders.send_replace(Order::End(reason.clone()));
        let name = name.clone();
        context.run_later(self.pace.end_patience, move |actor, context| {
            actor.ended(&name, number, Outcome::Failed(reason), context);
        });
    }

    /// A child's incarnation has ended; nothing if it is not the one that runs.
    pub(super) fn ended(
        &mut self,
        name: &Arc<str>,
        number: u64,
        outcome: Outcome,
        context: &mut Context<Self>,
    ) {
        let Some(child) = self.children.get_mut(name) else {
            return;
        };
        let incarnation = match &child.standing {
            Standing::Running(incarnation) if incarnation.number == number => incarnation,
            _ => return,
        };
        // One that had to be told to end was dead for a part of its run.
        let stable_after = match *incarnation.orders.borrow() {
            Order::End(_) => self.pace.stable_after * DEAD_RUN_PART,
            _ => self.pace.stable_after,
        };
        if incarnation.started.elapsed() >= stable_after {
            child.in_a_row = 0;
        }
        let told_to_finish = *incarnation.orders.borrow() == Order::Finish;
        let draining = *self.phase.borrow() >= Phase::Drain;
        let error = match outcome {
            Outcome::Finished if draining => return self.finish(name),
            Outcome::Finished if told_to_finish => return self.dismiss(name),
            Outcome::Finished => match &*incarnation.orders.borrow() {
                // It has seen the order first, and obeyed.
                Order::End(reason) => reason.clone(),
                _ => "ended before it was told to".to_owned(),
            },
            Outcome::Failed(error) => error,
            Outcome::Panicked(panic) => {
                tracing::error!(
                    child = %name,
                    %panic,
                    backtrace = panic.backtrace,
                    "a child panicked"
                );
                let error = format!("panicked: {panic}");
                self.registry.panicked(name, panic);
                error
            }
        };
        self.registry.failed(name, error.clone());
        if draining {
            tracing::warn!(child = %name, %error, "a child failed while draining");
            return self.finish(name);
        }
        if told_to_finish {
            tracing::warn!(child = %name, %error, "a child failed while it was to finish");
            return self.dismiss(name);
        }
        self.failed(name, error, context);
    }

    fn failed(&mut self, name: &Arc<str>, error: String, context: &mut Context<Self>) {
        let Some(child) = self.children.get_mut(name) else {
            return;
        };
        if self.rebuilding.is_some() {
            child.standing = Standing::Down;
            return self.go_on_rebuilding(context);
        }
        self.failures += 1;
        child.in_a_row = child.in_a_row.saturating_add(1);
        let in_a_row = child.in_a_row;
        let is_borne = child.spent.is_borne(self.pace.restarts, Instant::now());
        if !is_borne {
            child.standing = Standing::Down;
        }
        if !is_borne || in_a_row >= FAILURES_FIT_MAX || self.trial.is_on() {
            self.try_out(context);
        }
        if !is_borne {
            self.registry.past_budget(name);
            return self.escalate(format!("{name}: {error}"));
        }
        let delay = self.pace.backoff.delay(in_a_row);
        tracing::warn!(
            child = %name,
            %error,
            failures = in_a_row,
            delay_ms = delay.as_millis() as u64,
            "a child failed and is started again"
        );
        self.incarnations += 1;
        let wait = self.incarnations;
        if let Some(child) = self.children.get_mut(name) {
            child.standing = Standing::Waiting(wait);
        }
        let name = name.clone();
        let rest = resting(self.phase.clone(), delay).into_actor(self);
        context.spawn(rest.map(move |rested, actor, context| {
            let still = actor.children.get(&name).is_some_and(
                |child| matches!(child.standing, Standing::Waiting(number) if number == wait),
            );
            match rested {
                _ if !still => {}
                Resting::Over => actor.launch(&name, context),
                Resting::Draining => actor.finish(&name),
            }
        }));
    }

    /// Passes a failure on to the root, which has the concern rebuilt.
    fn escalate(&mut self, reason: String) {
        tracing::error!(concern = %self.concern, %reason, "past its restart budget");
        self.rebuilding = Some(Rebuilding::Asked);
        self.root.do_send(Escalated {
            concern: self.concern.clone(),
            reason,
        });
    }

    /// A child has finished after a drain.
    fn finish(&mut self, name: &Arc<str>) {
        if let Some(child) = self.children.get_mut(name) {
            child.standing = Standing::Finished;
            self.registry.drained(name);
        }
        self.tell_if_drained();
    }

    /// A child has finished that was told to, alone: nobody misses it.
    fn dismiss(&mut self, name: &Arc<str>) {
        self.children.remove(name);
        self.registry.gone(name);
        self.tell_if_drained();
    }

    /// In a drain, those finish at once that do not run.
    pub(super) fn tell_if_drained(&mut self) {
        if *self.phase.borrow() < Phase::Drain {
            return;
        }
        for (name, child) in &mut self.children {
            if matches!(child.standing, Standing::Waiting(_) | Standing::Down) {
                child.standing = Standing::Finished;
                self.registry.drained(name);
            }
        }
        let finished = |child: &Supervised| matches!(child.standing, Standing::Finished);
        if self.children.values().all(finished) {
            // A receiver that is gone no longer wants to know.
            for waiting in self.waiting.drain(..) {
                let _ = waiting.send(());
            }
        }
    }
}

/// Waits so long, or until the runtime drains.
pub(super) async fn resting(mut phase: watch::Receiver<Phase>, delay: Duration) -> Resting {
    let draining = phase.wait_for(|phase| *phase >= Phase::Drain);
    match tokio::time::timeout(delay, draining).await {
        Ok(_) => Resting::Draining,
        Err(_) => Resting::Over,
    }
}

impl Actor for Supervisor {
    type Context = Context<Self>;
}

impl Handler<Start> for Supervisor {
    type Result = ();

    fn handle(&mut self, Start(spec): Start, context: &mut Self::Context) {
        let name = spec.name.clone();
        if self.children.contains_key(&name) {
            tracing::error!(child = %name, "it runs already and is not started twice");
            return;
        }
        let child = Supervised {
            spec,
            standing: Standing::Down,
            in_a_row: 0,
            spent: Spent::default(),
        };
        self.children.insert(name.clone(), child);
        // Otherwise it is started with the others, or never.
        if self.rebuilding.is_none() && *self.phase.borrow() < Phase::Drain {
            self.launch(&name, context);
        }
        self.tell_if_drained();
    }
}

impl Handler<Tell> for Supervisor {
    type Result = ();

    fn handle(&mut self, Tell { name, order }: Tell, context: &mut Self::Context) {
        let Some(child) = self.children.get(&name) else {
            return;
        };
        match (&child.standing, order) {
            (Standing::Running(_), Order::End(reason)) => self.end(&name, reason, context),
            (Standing::Running(incarnation), order) => {
                incarnation.orders.send_replace(order);
            }
            (_, Order::Finish) => self.dismiss(&name),
            (_, _) => {}
        }
    }
}

impl Handler<Ended> for Supervisor {
    type Result = ();

    fn handle(&mut self, ended: Ended, context: &mut Self::Context) {
        self.ended(&ended.name, ended.incarnation, ended.outcome, context);
    }
}

impl Handler<Drained> for Supervisor {
    type Result = ();

    fn handle(&mut self, Drained(waiting): Drained, _: &mut Self::Context) {
        self.waiting.push(waiting);
        self.tell_if_drained();
    }
}
