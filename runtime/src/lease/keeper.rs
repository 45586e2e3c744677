use std::time::{Duration, Instant};

use super::share::fair_share;
use super::{Board, MemberId};
use crate::store::{Database, LeaseStore, Store, StoreError};
use crate::supervision::{Arbiters, ChildError, Life, Progress, crash_point};

/// How much earlier than the database an owner stops to use a lease: room for clocks that do not
/// run at quite the same speed.
const MARGIN_PART: u32 = 10;

/// How many ticks fit into one lease period.
const TICKS_PER_TTL: u32 = 3;

/// Keeps one resource's leases: the body of a lease keeper actor.
#[derive(Clone)]
pub(crate) struct Keeper<D: Database> {
    pub(crate) store: D::Store,
    /// Each tick is a step.
    pub(crate) progress: Progress,
    /// Where users live: what is used on a blocked one is deserted.
    pub(crate) arbiters: Arbiters,
    pub(crate) board: Board,
    pub(crate) member: MemberId,
    /// How many lanes or partitions there are.
    pub(crate) count: u8,
    pub(crate) ttl: Duration,
    /// Told how many processes share the resource after each tick.
    pub(crate) members: tokio::sync::watch::Sender<usize>,
}

impl<D: Database> Keeper<D> {
    /// Ticks until the runtime drains, then until all uses have ended.
    pub(crate) async fn run(self, life: Life) -> Result<(), ChildError> {
        let mut returns = self.board.returns();
        let mut failures = 0;
        loop {
            returns.hear();
            // As it was before the tick: a drain that begins in its middle gets a tick of its own,
            // not one after the whole pause.
            let draining = life.is_draining();
            match self.tick(draining).await {
                Ok(()) if failures > 0 => {
                    failures = 0;
                    life.recovered();
                }
                Ok(()) => {}
                // An outage is sat out here: a restart would add its own backoff, in which leases
                // run out.
                Err(error) if !life.is_draining() => {
                    failures += 1;
                    life.sit_out(failures, &error).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            if draining && self.board.is_idle() {
                return Ok(());
            }
            let pause = tokio::time::sleep(self.ttl / TICKS_PER_TTL);
            tokio::select! {
                () = pause => {}
                // A use that ends is news only while something is to be given back.
                () = returns.called(), if self.board.has_unkept() => {}
                () = life.draining(), if !draining => {}
            }
        }
    }

    async fn tick(&self, draining: bool) -> Result<(), StoreError> {
        let resource = self.board.resource();
        // Before the first statement is sent: the trust window is counted from here.
        let valid_until = Instant::now() + self.ttl - self.ttl / MARGIN_PART;
        // One that drains is no member any more: the others' shares are the whole, and they take at
        // once what it gives back while it finishes the rest.
        let membership = if draining { Duration::ZERO } else { self.ttl };
        let mut session = self.store.begin().await?;
        let members = self
            .store
            .join(&mut session, resource, self.count, self.member, membership)
            .await?;
        let deserted_here = self
            .board
            .write_off(|thread| self.arbiters.is_blocked(thread));
        self.store
            .desert(&mut session, resource, self.member, &deserted_here)
            .await?;
        let mut owned = self
            .store
            .renew(&mut session, resource, self.member, self.ttl)
            .await?;
        crash_point!("lease.renewed");
        self.board.lose_all_but(&owned);
        let share = if draining {
            0
        } else {
            fair_share(self.count, &members, self.member)
        };
        let free = self.board.shrink_to(share);
        if !free.is_empty() {
            self.store
                .give_back(&mut session, resource, self.member, &free)
                .await?;
            owned.retain(|grant| !free.contains(grant));
            crash_point!("lease.given_back");
        }
        let mut taken_over = Vec::new();
        if owned.len() < share {
            let wanted = share - owned.len();
            let deserted = self
                .store
                .deserted(&mut session, resource, self.count, self.member)
                .await?;
            let taken = self
                .store
                .acquire(
                    &mut session,
                    resource,
                    self.count,
                    self.member,
                    self.ttl,
                    wanted,
                )
                .await?;
            let deserted = taken.iter().filter(|grant| {
                let here = deserted_here.iter().any(|it| it.number == grant.number);
                here || deserted.contains(&grant.number)
            });
            taken_over.extend(deserted);
            if !taken.is_empty() {
                crash_point!("lease.acquired");
            }
            owned.extend(taken);
        }
        // Only what is committed is trusted: an uncommitted renewal would outlive the database's
        // view of it.
        session.commit().await?;
        crash_point!("lease.committed");
        self.board.given_up(&deserted_here);
        self.board.note_takeovers(&taken_over);
        self.board.set(&owned, valid_until);
        self.progress.step();
        self.members
            .send_if_modified(|known| std::mem::replace(known, members.len()) != members.len());
        Ok(())
    }
}

/// Ends this process's claim to every resource, in the end of a drain: others need not wait for the
/// leases to expire.
pub(crate) async fn leave_all<S: Store>(
    store: &S,
    boards: &[Board],
    member: MemberId,
) -> Result<(), StoreError> {
    let mut session = store.begin().await?;
    for board in boards {
        store.leave(&mut session, board.resource(), member).await?;
    }
    session.commit().await
}
