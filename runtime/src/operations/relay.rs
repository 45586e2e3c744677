use std::time::Duration;

use tokio::sync::watch;

use crate::store::Store;
use crate::supervision::{ChildError, Life, Wake};

/// The shortest time between two notifications: whatever is committed meanwhile shares one.
const NOTIFY_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// Carries wakes between the processes of one database: the body of the relay actor. Nothing
/// depends on it but latency.
#[derive(Clone)]
pub(crate) struct Relay<S> {
    pub(crate) store: S,
    /// Called when this process has enqueued or filled queues.
    pub(crate) outgoing: Wake,
    /// What to call when another process has.
    pub(crate) incoming: Vec<Wake>,
    /// How many processes share the lanes: with one there is nobody to tell.
    pub(crate) members: watch::Receiver<usize>,
}

impl<S: Store> Relay<S> {
    /// Relays until the runtime drains.
    pub(crate) async fn run(self, life: Life) -> Result<(), ChildError> {
        tokio::select! {
            () = self.listen(&life) => {}
            () = self.notify() => {}
            () = life.draining() => {}
        }
        Ok(())
    }

    async fn listen(&self, life: &Life) {
        let mut failures = 0;
        loop {
            match self.store.notified().await {
                Ok(()) => {
                    if failures > 0 {
                        failures = 0;
                        life.recovered();
                    }
                    self.incoming.iter().for_each(Wake::echo);
                }
                Err(error) => {
                    failures += 1;
                    life.sit_out(failures, &error).await;
                }
            }
        }
    }

    async fn notify(&self) {
        let mut outgoing = self.outgoing.listen();
        loop {
            outgoing.called().await;
            if *self.members.borrow() > 1 {
                // One that is lost costs latency, no more: the other processes poll.
                if let Err(error) = self.store.notify().await {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "other processes were not notified"
                    );
                }
                tokio::time::sleep(NOTIFY_INTERVAL_MIN).await;
            }
        }
    }
}
