use super::shared::Shared;
use crate::operations::liveness::Liveness;
use crate::operations::replay::Replayer;
use crate::store::Database;
use crate::supervision::{Place, Tree, Wake};

/// Starts the replayer, and who looks whether everybody is alive. What they know of a run is in the
/// database, and what they know of the others is forgotten at each start.
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
    let liveness = Liveness::<D> {
        store: shared.store.clone(),
        driver: shared.driver.clone(),
        subjects: shared.subjects.clone(),
        interval: shared.settings.lease_ttl,
    };
    concern.start("liveness", Place::Inner, move |life| {
        liveness.clone().run(life)
    });
}
