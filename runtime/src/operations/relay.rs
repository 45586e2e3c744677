use std::time::Duration;

use tokio::sync::watch;

use crate::store::Store;
use crate::supervision::{ChildError, Life, Wake};

/// The shortest time between two notifications: whatever is committed meanwhile shares one.
const NOTIFY_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// Carries wakes between the processes of one database: the body of the relay actor. Nothing depends on it but latency.
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
            ended = self.listen() => ended,
            ended = self.notify() => ended,
            () = life.draining() => Ok(()),
        }
    }

    async fn listen(&self) -> Result<(), ChildError> {
        loop {
            self.store.notified().await?;
            self.incoming.iter().for_each(Wake::echo);
        }
    }

    async fn notify(&self) -> Result<(), ChildError> {
        let mut outgoing = self.outgoing.listen();
        loop {
            outgoing.called().await;
            if *self.members.borrow() > 1 {
                self.store.notify().await?;
                tokio::time::sleep(NOTIFY_INTERVAL_MIN).await;
            }
        }
    }
}
