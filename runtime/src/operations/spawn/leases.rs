use std::sync::Arc;

use tokio::sync::watch;

use super::consumer::Consuming;
use super::shared::Shared;
use crate::layout::Seat;
use crate::lease::{Board, Keeper};
use crate::message::SLOTS;
use crate::operations::liveness::{Kind, Subject};
use crate::store::Database;
use crate::supervision::{Concern, Fitness, Place, Progress, Tree};

/// Starts a keeper for the lanes and one for each consumer's partitions; returns how many processes
/// share the lanes. What a keeper knows is on its board, which its users hold too: it outlives
/// everybody, and a rebuild forgets nothing.
pub(super) fn start<D: Database>(
    tree: &Tree,
    shared: &Shared<D>,
    (lanes, outbox): (Board, &Concern),
    consumers: Vec<(&Consuming<D>, Concern, Seat<D>)>,
) -> watch::Receiver<usize> {
    let concern = tree.concern("leases", || async {});
    let (members, seen) = watch::channel(0);
    let users = outbox.fitness();
    keep(
        tree,
        &concern,
        shared,
        (lanes, users),
        (SLOTS, None),
        members,
    );
    for (consumer, users, seat) in consumers {
        // Whoever shares a consumer shares the lanes too: their keeper tells.
        let members = watch::Sender::new(0);
        let board = consumer.board.clone();
        let of = (consumer.partitions, Some(seat));
        let board = (board, users.fitness());
        keep(tree, &concern, shared, board, of, members);
    }
    seen
}

fn keep<D: Database>(
    tree: &Tree,
    concern: &Concern,
    shared: &Shared<D>,
    (board, fitness): (Board, watch::Receiver<Fitness>),
    (count, seat): (u8, Option<Seat<D>>),
    members: watch::Sender<usize>,
) {
    let keeper = Keeper::<D> {
        store: shared.store.clone(),
        progress: Progress::default(),
        arbiters: tree.arbiters.clone(),
        board,
        member: shared.member,
        count,
        seat,
        ttl: shared.settings.lease_ttl,
        fitness,
        members,
    };
    let child: Arc<str> = format!("lease keeper of {}", keeper.board.resource().name()).into();
    shared.subjects.add(Subject {
        concern: concern.clone(),
        child: child.clone(),
        progress: keeper.progress.clone(),
        board: keeper.board.clone(),
        kind: Kind::Keeper { ttl: keeper.ttl },
    });
    concern.start(child, Place::Inner, move |life| keeper.clone().run(life));
}
