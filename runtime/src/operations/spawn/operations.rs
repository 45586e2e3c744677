use super::shared::Shared;
use crate::operations::replay::Replayer;
use crate::store::Database;
use crate::supervision::{Place, Tree, Wake};

/// Starts the replayer. What it knows of a run is in the database.
pub(super) fn start<D: Database>(tree: &Tree, shared: &Shared<D>, begun: &Wake) {
    let replayer = Replayer {
        store: shared.store.clone(),
        begun: begun.clone(),
        enqueued: shared.wakes.enqueued.clone(),
    };
    let concern = tree.concern("operations", || async {});
    concern.start("replayer", Place::Inner, move |life| {
        replayer.clone().run(life)
    });
}
