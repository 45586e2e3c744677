use std::sync::Arc;

use super::shared::Shared;
use crate::layout::Declaration;
use crate::lease::Board;
use crate::message::SLOTS;
use crate::operations::liveness::{Kind, Subject};
use crate::outbox::Dispatcher;
use crate::store::Database;
use crate::supervision::{Concern, Place, Progress, Tree};

/// Starts the dispatchers. They share the declarations of this process's consumers and the broker's
/// connection for publishing: a rebuild forgets both.
pub(super) fn start<D: Database>(
    tree: &Tree,
    shared: &Shared<D>,
    lanes: &Board,
    declarations: &[Declaration<D>],
) -> Concern {
    let (driver, shared_declarations) = (shared.driver.clone(), declarations.to_vec());
    let concern = tree.concern("outbox", move || {
        let (driver, declarations) = (driver.clone(), shared_declarations.clone());
        async move {
            for declaration in &declarations {
                declaration.forget().await;
            }
            driver.disconnect().await;
        }
    });
    let settings = &shared.settings;
    let policies = Arc::new(settings.dispatch.clone());
    let of = settings.arbiters.min(usize::from(SLOTS)) as u8;
    for index in 0..of {
        let progress = Progress::default();
        let child: Arc<str> = format!("dispatcher {index}").into();
        shared.subjects.add(Subject {
            concern: concern.clone(),
            child: child.clone(),
            progress: progress.clone(),
            board: lanes.clone(),
            kind: Kind::Dispatcher {
                index,
                of,
                patience: shared.driver.publish_timeout() + settings.lease_ttl * 4,
            },
        });
        let dispatcher = Dispatcher::<D> {
            progress,
            store: shared.store.clone(),
            driver: shared.driver.clone(),
            board: lanes.clone(),
            declarations: declarations.to_vec(),
            index,
            of,
            batch: settings.dispatch_batch,
            payload_bytes_max: settings.payload_bytes_max,
            policies: policies.clone(),
            poll_interval_max: settings.poll_interval_max,
            enqueued: shared.wakes.enqueued.clone(),
            counters: shared.counters.clone(),
            client: shared.client.clone(),
            filled: shared.wakes.filled.clone(),
        };
        concern.start(child, Place::Spread, move |life| {
            dispatcher.clone().run(life)
        });
    }
    concern
}
