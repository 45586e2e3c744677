use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix::prelude::*;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use tokio::sync::watch;

use super::{Phase, Registry, error_chain, panic_text};
use crate::retry::Backoff;

/// Why a child's body ended before it was told to.
pub(crate) type ChildError = Box<dyn Error + Send + Sync>;

/// A child's body: called on the child's arbiter at every start.
pub(crate) type Body =
    Arc<dyn Fn(Life) -> LocalBoxFuture<'static, Result<(), ChildError>> + Send + Sync>;

/// What a body knows of its own life: its name, and the phase of the runtime.
#[derive(Clone)]
pub(crate) struct Life {
    pub(crate) name: Arc<str>,
    pub(crate) registry: Registry,
    phase: watch::Receiver<Phase>,
}

impl Life {
    pub(crate) fn new(name: &str, registry: Registry, phase: watch::Receiver<Phase>) -> Self {
        Self {
            name: name.into(),
            registry,
            phase,
        }
    }

    /// Whether nothing new may be taken.
    pub(crate) fn is_draining(&self) -> bool {
        *self.phase.borrow() >= Phase::Drain
    }

    /// Waits until nothing new may be taken. Cancel-safe.
    pub(crate) async fn draining(&self) {
        let mut phase = self.phase.clone();
        // An error means that the runtime itself is gone: that is a drain as well.
        let _ = phase.wait_for(|phase| *phase >= Phase::Drain).await;
    }

    /// Waits this long, or until nothing new may be taken; `false` in the latter case. Cancel-safe.
    pub(crate) async fn pause(&self, duration: Duration) -> bool {
        tokio::time::timeout(duration, self.draining())
            .await
            .is_err()
    }

    /// Sits out an outage of something outside after this many failures in a row: says what is
    /// missing, and waits, at most until nothing new may be taken. Cancel-safe.
    pub(crate) async fn sit_out(&self, failures: u32, error: &(dyn Error + 'static)) {
        self.registry.degraded(&self.name, error_chain(error));
        let delay = outage_delay(failures, rand::random::<f64>());
        tracing::warn!(
            child = %self.name,
            error,
            failures,
            delay_ms = delay.as_millis() as u64,
            "interrupted; it waits for what is missing"
        );
        self.pause(delay).await;
    }

    /// Says that nothing is missing any more.
    pub(crate) fn recovered(&self) {
        self.registry.recovered(&self.name);
    }
}

/// Between tries of something outside that is not there: soon at first, and never so long that work
/// rests much longer than the outage.
const OUTAGE_BACKOFF: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(8));

/// At least half of the backoff: chance spreads the tries of many actors, and makes none of them
/// spin.
fn outage_delay(failures: u32, random: f64) -> Duration {
    OUTAGE_BACKOFF.delay_with(failures, 0.5 + random / 2.0)
}

/// How a body ended.
pub(crate) enum Outcome {
    Finished,
    Failed(String),
    Panicked(String),
}

/// Says to the supervisor that a child's body has ended.
pub(crate) struct Ended {
    pub(crate) name: String,
    pub(crate) outcome: Outcome,
    pub(crate) ran_for: Duration,
}

impl Message for Ended {
    type Result = ();
}

/// The actor around a body: it lives on the child's arbiter, runs the body once, reports how it
/// ended, and stops.
pub(crate) struct ChildActor {
    pub(crate) life: Life,
    pub(crate) body: Body,
    pub(crate) supervisor: Recipient<Ended>,
}

impl Actor for ChildActor {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        let (life, body, supervisor) = (
            self.life.clone(),
            self.body.clone(),
            self.supervisor.clone(),
        );
        let run = async move {
            let started = Instant::now();
            let name = life.name.to_string();
            let mut phase = life.phase.clone();
            // The body itself is made inside the guard: it may panic before its first await.
            let body = AssertUnwindSafe(async move { body(life).await }).catch_unwind();
            let outcome = tokio::select! {
                ended = body => match ended {
                    Ok(Ok(())) => Outcome::Finished,
                    Ok(Err(error)) => Outcome::Failed(error_chain(error.as_ref())),
                    Err(panic) => Outcome::Panicked(panic_text(panic.as_ref())),
                },
                _ = phase.wait_for(|phase| *phase == Phase::Abort) => Outcome::Finished,
            };
            let ended = Ended {
                name,
                outcome,
                ran_for: started.elapsed(),
            };
            // The supervisor outlives its children; when it does not, the whole runtime is going
            // down.
            let _ = supervisor.send(ended).await;
        };
        context.spawn(run.into_actor(self).map(|(), _, context| context.stop()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_of_a_minute_costs_few_tries_and_its_end_is_noticed_soon() {
        for random in [0.0, 0.5, 1.0] {
            let mut tries = 1;
            let mut waited = Duration::ZERO;
            while waited < Duration::from_secs(60) {
                let delay = outage_delay(tries, random);
                assert!(delay >= OUTAGE_BACKOFF.ceiling(tries) / 2);
                assert!(delay <= Duration::from_secs(8));
                waited += delay;
                tries += 1;
            }
            assert!(tries <= 21, "{tries} tries");
        }
    }
}
