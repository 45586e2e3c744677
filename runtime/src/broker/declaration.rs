use std::sync::Arc;

use tokio::sync::Mutex;

use super::{BrokerDriver, BrokerError, Topology};
use crate::store::Database;

/// One consumer's topology, declared once by whichever of its partition actors comes first, and again after a subscription failed: the queue may be
/// gone.
pub(crate) struct Declaration<D: Database> {
    driver: Arc<dyn BrokerDriver<D>>,
    topology: Arc<Topology>,
    declared: Arc<Mutex<bool>>,
}

impl<D: Database> Declaration<D> {
    pub(crate) fn new(driver: Arc<dyn BrokerDriver<D>>, topology: Topology) -> Self {
        Self {
            driver,
            topology: Arc::new(topology),
            declared: Arc::default(),
        }
    }

    /// Declares if nobody has; others wait meanwhile.
    pub(crate) async fn ensure(&self) -> Result<(), BrokerError> {
        let mut declared = self.declared.lock().await;
        if !*declared {
            self.driver.declare(&self.topology).await?;
            *declared = true;
        }
        Ok(())
    }

    /// Has it declared again before the next subscription.
    pub(crate) async fn forget(&self) {
        *self.declared.lock().await = false;
    }
}

impl<D: Database> Clone for Declaration<D> {
    fn clone(&self) -> Self {
        Self {
            driver: self.driver.clone(),
            topology: self.topology.clone(),
            declared: self.declared.clone(),
        }
    }
}
