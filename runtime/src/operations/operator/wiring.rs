use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::consumer::Handlers;
use crate::store::Database;
use crate::supervision::Wake;

/// What an operator in a running process has beside the database: its handlers, and whom to call.
pub(crate) struct Wiring<D: Database> {
    /// The handlers of each consumer, by message type.
    pub(crate) handlers: BTreeMap<String, Arc<Handlers<D>>>,
    /// Called when something was put into the outbox or is due in the retry table.
    pub(crate) enqueued: Wake,
    /// Called when a replay run begins or goes on.
    pub(crate) begun: Wake,
    /// Largest payload, in bytes.
    pub(crate) payload_bytes_max: usize,
}

impl<D: Database> Clone for Wiring<D> {
    fn clone(&self) -> Self {
        Self {
            handlers: self.handlers.clone(),
            enqueued: self.enqueued.clone(),
            begun: self.begun.clone(),
            payload_bytes_max: self.payload_bytes_max,
        }
    }
}

impl<D: Database> fmt::Debug for Wiring<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wiring")
            .field("consumers", &self.handlers.keys())
            .finish_non_exhaustive()
    }
}
