use tokio::sync::watch;

use super::shared::Shared;
use crate::operations::relay::Relay;
use crate::store::Database;
use crate::supervision::{Place, Tree, Wake};

/// The wakes of one process. They are the addresses that stay valid whoever listens.
pub(super) struct Wakes {
    /// Called for whatever other processes are to hear of.
    pub(super) outgoing: Wake,
    /// Called when the outbox may have got rows.
    pub(super) enqueued: Wake,
    /// Called when queues may have been filled.
    pub(super) filled: Wake,
}

impl Wakes {
    pub(super) fn new() -> Self {
        let outgoing = Wake::new();
        Self {
            enqueued: Wake::relayed_by(&outgoing),
            filled: Wake::relayed_by(&outgoing),
            outgoing,
        }
    }
}

/// Starts the relay between processes. It shares nothing that could be stale.
pub(super) fn start<D: Database>(tree: &Tree, shared: &Shared<D>, members: watch::Receiver<usize>) {
    let wakes = &shared.wakes;
    let relay = Relay {
        store: shared.store.clone(),
        outgoing: wakes.outgoing.clone(),
        incoming: vec![wakes.enqueued.clone(), wakes.filled.clone()],
        members,
    };
    let concern = tree.concern("wakes", || async {});
    concern.start("relay", Place::Inner, move |life| relay.clone().run(life));
}
