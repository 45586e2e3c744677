//! What a runtime is made of, from the parts that were checked to the actors that run: one file per
//! concern.
//!
//! ```text
//! Parts ── Shared: what all concerns have in common
//!   │
//!   ├─ outbox       dispatchers, one per arbiter
//!   ├─ consumer     for each: its partition actors, who moves its queues, and who reads its dead queue
//!   ├─ leases       a keeper for the lanes, and one per consumer
//!   ├─ wakes        the relay between processes
//!   └─ operations   the replayer, and who looks whether all are alive
//! ```
//!
//! Users first, keepers last: a keeper drains when its board is idle. Children that run nothing of
//! the application's live with the supervisors, so that no handler can hold up a lease, a wake or
//! whoever looks after the rest; dispatchers, which have much to do, and partition actors are spread
//! over the other arbiters.

mod consumer;
mod leases;
mod operations;
mod outbox;
mod shared;
mod wakes;

use std::collections::BTreeMap;

use tokio::sync::watch;

use self::consumer::Consuming;
use self::shared::Shared;
use super::operator::Wiring;
use super::posta::Running;
use super::{Posta, Settings};
use crate::broker::Broker;
use crate::consumer::Consumer;
use crate::lease::{Board, Resource};
use crate::retry::Backoff;
use crate::store::Database;
use crate::supervision::{Pace, RESTART_BACKOFF_BASE, Tree, Wake};

/// What a runtime is made of, once everything has been checked.
pub(super) struct Parts<D: Database> {
    pub(super) store: D::Store,
    pub(super) broker: Broker,
    pub(super) consumers: Vec<Consumer<D>>,
    pub(super) settings: Settings,
}

impl<D: Database> Parts<D> {
    /// Spawns supervisors and children.
    pub(super) async fn spawn(self) -> Posta<D> {
        let Self {
            store,
            broker,
            consumers,
            settings,
        } = self;
        let pace = Pace {
            backoff: Backoff::new(RESTART_BACKOFF_BASE, settings.restart_backoff),
            stable_after: settings.stable_after,
            ..Pace::new(settings.restarts, settings.rebuilds, settings.lease_ttl)
        };
        let tree = Tree::new(settings.arbiters, pace, settings.past_budget);
        let shared = Shared::new(store, &broker, settings);
        let lanes = Board::new(Resource::Lanes, shared.member);
        let consumers: Vec<Consuming<D>> = consumers
            .into_iter()
            .map(|consumer| Consuming::new(&shared, consumer))
            .collect();
        let declarations: Vec<_> = consumers.iter().map(|it| it.declaration.clone()).collect();
        let mut boards = vec![lanes.clone()];
        boards.extend(consumers.iter().map(|it| it.board.clone()));

        let outbox_concern = outbox::start(&tree, &shared, &lanes, &declarations);
        let seats = consumers
            .iter()
            .map(|it| {
                let (concern, seat) = it.start(&tree, &shared);
                (it, concern, seat)
            })
            .collect();
        let members = leases::start(&tree, &shared, (lanes, &outbox_concern), seats);
        wakes::start(&tree, &shared, members);
        let begun = Wake::new();
        operations::start(&tree, &shared, &begun);

        let handlers = consumers.iter();
        let handlers = handlers.map(|it| (it.name.clone(), it.handlers.clone()));
        let wiring = Wiring {
            handlers: handlers.collect::<BTreeMap<_, _>>(),
            enqueued: shared.wakes.enqueued.clone(),
            begun,
            payload_bytes_max: shared.settings.payload_bytes_max,
        };
        let names = consumers.iter().map(|it| it.name.clone()).collect();
        let declared = declarations.iter().map(|it| it.done()).collect();
        let Shared {
            store,
            outbox,
            wakes,
            counters,
            member,
            settings,
            ..
        } = shared;
        let awaited = watch::Sender::new(false);
        #[cfg(target_os = "linux")]
        super::systemd::Systemd {
            tree: tree.clone(),
            boards: boards.clone(),
            awaited: awaited.subscribe(),
            grace: settings.grace,
        }
        .start();
        let running = Running {
            member,
            boards,
            declared,
            settings,
            tree,
            awaited,
            stopped: watch::Sender::new(false),
        };
        Posta::new(
            store,
            outbox,
            wakes.enqueued,
            counters,
            names,
            wiring,
            running,
        )
    }
}
