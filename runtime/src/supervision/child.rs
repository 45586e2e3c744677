use std::error::Error;
use std::sync::Arc;

use actix::prelude::*;
use futures_util::future::LocalBoxFuture;

use super::arbiters::Pulse;
use super::life::Order;
use super::panic::{Caught, Guarded};
use super::{Life, Phase, error_chain};

/// Why a child's body ended before it was told to.
pub(crate) type ChildError = Box<dyn Error + Send + Sync>;

/// A child's body: called on the child's arbiter at every start.
pub(crate) type Body =
    Arc<dyn Fn(Life) -> LocalBoxFuture<'static, Result<(), ChildError>> + Send + Sync>;

/// How a body ended.
pub(super) enum Outcome {
    Finished,
    Failed(String),
    Panicked(Caught),
}

/// Says to the supervisor that a child's body has ended.
pub(super) struct Ended {
    pub(super) name: Arc<str>,
    pub(super) incarnation: u64,
    pub(super) outcome: Outcome,
}

impl Message for Ended {
    type Result = ();
}

/// The actor around a body: it lives on the child's arbiter, runs the body once, reports how it
/// ended, and stops.
pub(super) struct ChildActor {
    pub(super) life: Life,
    pub(super) incarnation: u64,
    pub(super) body: Body,
    pub(super) pulse: Arc<Pulse>,
    pub(super) supervisor: Recipient<Ended>,
}

impl Actor for ChildActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let incarnation = self.incarnation;
        let (life, body, supervisor) = (
            self.life.clone(),
            self.body.clone(),
            self.supervisor.clone(),
        );
        let pulse = self.pulse.clone();
        let run = async move {
            let name = life.name.clone();
            let (mut phase, mut orders) = (life.phase.clone(), life.orders.clone());
            // The body itself is made inside the guard: it may panic before its first await. What
            // it holds is dropped inside it too, before the supervisor hears of its end.
            let mut body = Guarded::new(pulse.watch(name.clone(), async move { body(life).await }));
            let outcome = tokio::select! {
                // First: one whose arbiter was blocked meanwhile is not to take another step.
                biased;
                Some(reason) = told_to_end(&mut orders) => Outcome::Failed(reason),
                _ = phase.wait_for(|phase| *phase == Phase::Abort) => Outcome::Finished,
                ended = &mut body => match ended {
                    Ok(Ok(())) => Outcome::Finished,
                    Ok(Err(error)) => Outcome::Failed(error_chain(error.as_ref())),
                    Err(panic) => Outcome::Panicked(panic),
                },
            };
            drop(body);
            let ended = Ended {
                name,
                incarnation,
                outcome,
            };
            // The supervisor outlives its children; when it does not, the whole runtime is going
            // down.
            let _ = supervisor.send(ended).await;
        };
        context.spawn(run.into_actor(self).map(|(), _, context| context.stop()));
    }
}

/// Waits for the order to end; `None` once nobody gives orders any more, which ends no child that
/// finishes.
async fn told_to_end(orders: &mut tokio::sync::watch::Receiver<Order>) -> Option<String> {
    let order = orders.wait_for(|order| matches!(order, Order::End(_)));
    match order.await.as_deref() {
        Ok(Order::End(reason)) => Some(reason.clone()),
        _ => None,
    }
}
