use std::sync::Arc;

use tokio::sync::watch;

/// Where a test stops handlers, learns of it, and lets them go. Open by default.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    open: Arc<watch::Sender<bool>>,
    arrived: Arc<watch::Sender<usize>>,
}

impl Gate {
    /// A gate at which handlers wait.
    pub(crate) fn closed() -> Self {
        Self::new(false)
    }

    fn new(open: bool) -> Self {
        Self {
            open: Arc::new(watch::Sender::new(open)),
            arrived: Arc::new(watch::Sender::new(0)),
        }
    }

    /// Lets all go, those who come later too.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    /// How many have arrived so far, each try of a message counted.
    pub(crate) fn arrived(&self) -> usize {
        *self.arrived.borrow()
    }

    /// Waits until so many have arrived.
    pub(crate) async fn until_arrived(&self, count: usize) {
        let mut arrived = self.arrived.subscribe();
        let arrived = arrived.wait_for(|arrived| *arrived >= count);
        tokio::time::timeout(super::PATIENCE, arrived)
            .await
            .unwrap_or_else(|_| panic!("not {count} have arrived, but {}", self.arrived()))
            .expect("the gate itself holds the sender");
    }

    /// A handler's side.
    pub(crate) async fn pass(&self) {
        self.arrived.send_modify(|arrived| *arrived += 1);
        let mut open = self.open.subscribe();
        let _ = open.wait_for(|open| *open).await;
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(true)
    }
}
