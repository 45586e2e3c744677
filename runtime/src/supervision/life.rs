use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::{Phase, Registry, error_chain};
use crate::retry::Backoff;

/// What a supervisor orders one child's incarnation to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Order {
    /// To run.
    #[default]
    Run,
    /// To drain, alone and for good.
    Finish,
    /// To be dropped where it stands, which counts as a failure for this reason.
    End(String),
}

/// What a body knows of its own life: its name, and how far it and the runtime are.
#[derive(Clone)]
pub(crate) struct Life {
    pub(crate) name: Arc<str>,
    pub(crate) registry: Registry,
    pub(super) phase: watch::Receiver<Phase>,
    pub(super) orders: watch::Receiver<Order>,
}

impl Life {
    pub(super) fn new(
        name: &str,
        registry: Registry,
        phase: watch::Receiver<Phase>,
        orders: watch::Receiver<Order>,
    ) -> Self {
        Self {
            name: name.into(),
            registry,
            phase,
            orders,
        }
    }

    /// Whether nothing new may be taken.
    pub(crate) fn is_draining(&self) -> bool {
        *self.phase.borrow() >= Phase::Drain || *self.orders.borrow() != Order::Run
    }

    /// Waits until nothing new may be taken. Cancel-safe.
    pub(crate) async fn draining(&self) {
        let (mut phase, mut orders) = (self.phase.clone(), self.orders.clone());
        // An error means that who gives the word is gone: that is a drain as well.
        tokio::select! {
            _ = phase.wait_for(|phase| *phase >= Phase::Drain) => {}
            _ = orders.wait_for(|order| *order != Order::Run) => {}
        }
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
