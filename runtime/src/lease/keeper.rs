use std::time::{Duration, Instant};

use super::share::fair_share;
use super::{Board, MemberId, Resource};
use crate::layout::Seat;
use crate::store::{Database, Layout, LayoutStep, LeaseStore, Store, StoreError};
use crate::supervision::{
    Arbiters, ChildError, Fitness, Life, Progress, WakeListener, crash_point,
};

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
    /// How many lanes there are; of a consumer's partitions the layout says it.
    pub(crate) count: u8,
    /// At a consumer: the part that its processes have in its layout.
    pub(crate) seat: Option<Seat<D>>,
    pub(crate) ttl: Duration,
    /// Of those who use the leases.
    pub(crate) fitness: tokio::sync::watch::Receiver<Fitness>,
    /// Told how many processes share the resource after each tick.
    pub(crate) members: tokio::sync::watch::Sender<usize>,
}

impl<D: Database> Keeper<D> {
    /// Ticks until the runtime drains, then until all uses have ended.
    pub(crate) async fn run(mut self, life: Life) -> Result<(), ChildError> {
        let mut returns = self.board.returns();
        let mut news = self.seat.as_ref().map(|seat| seat.watch.news());
        let mut failures = 0;
        loop {
            returns.hear();
            if let Some(news) = &mut news {
                news.hear();
            }
            // As it was before the tick: a drain that begins in its middle gets a tick of its own,
            // not one after the whole pause.
            let draining = life.is_draining();
            let fitness = *self.fitness.borrow_and_update();
            let pause = match self.tick(draining, fitness).await {
                Ok(pause) => {
                    if failures > 0 {
                        failures = 0;
                        life.recovered();
                    }
                    pause
                }
                // An outage is sat out here: a restart would add its own backoff, in which leases
                // run out.
                Err(error) if !life.is_draining() => {
                    failures += 1;
                    life.sit_out(failures, &error).await;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            if draining && self.board.is_idle() {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = called(&mut news) => {}
                () = changed(&mut self.fitness) => {}
                // A use that ends is news only while something is to be given back.
                () = returns.called(), if self.board.has_unkept() => {}
                () = life.draining(), if !draining => {}
            }
        }
    }

    /// One tick; how long until the next.
    async fn tick(&self, draining: bool, fitness: Fitness) -> Result<Duration, StoreError> {
        // Before the first statement is sent: the trust window is counted from here.
        let valid_until = Instant::now() + self.ttl - self.ttl / MARGIN_PART;
        // One that drains is no member any more: the others' shares are the whole, and they take at
        // once what it gives back while it finishes the rest.
        let attendance = if draining { Duration::ZERO } else { self.ttl };
        // Nor is one whose users are not fit; a layout waits for it all the same.
        let membership = match fitness {
            Fitness::Fit => attendance,
            Fitness::OnTrial | Fitness::Resting => Duration::ZERO,
        };
        let mut session = self.store.begin().await?;
        let (mut resource, mut count) = (self.board.resource(), self.count);
        let (mut settled, mut releasing) = (true, false);
        let mut layout = None;
        if let Some(seat) = &self.seat {
            let attendance = seat.attend(&mut session, self.member, attendance).await?;
            let former = std::mem::replace(&mut resource, seat.resource(&attendance.layout));
            if former != resource {
                self.store.leave(&mut session, &former, self.member).await?;
                self.board.turn_to(&resource);
            }
            count = attendance.layout.generation.partitions;
            settled = attendance.settled;
            releasing = matches!(attendance.layout.step, LayoutStep::Releasing { .. });
            layout = Some(attendance.layout);
        }
        let resource = &resource;
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
        if !settled {
            // Somebody is just changing the layout: what is owned is kept, and that is all.
            session.commit().await?;
            self.board.given_up(&deserted_here);
            self.board.set(&owned, valid_until);
            self.progress.step();
            return Ok(self.pause(layout.as_ref()));
        }
        let members = self
            .store
            .join(&mut session, resource, count, self.member, membership)
            .await?;
        // One that is no member may be among them until others look.
        let others = members.iter().filter(|member| **member != self.member);
        let others = others.count();
        let share = match fitness {
            _ if draining || releasing => 0,
            Fitness::Fit => fair_share(count, &members, self.member),
            // Nobody else would do it.
            Fitness::OnTrial if others == 0 => usize::from(count),
            Fitness::OnTrial | Fitness::Resting => 0,
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
                .deserted(&mut session, resource, count, self.member)
                .await?;
            let taken = self
                .store
                .acquire(&mut session, resource, count, self.member, self.ttl, wanted)
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
        let advanced = match (&self.seat, &layout) {
            (Some(seat), Some(layout)) => seat.advance(&mut session, layout).await?,
            _ => None,
        };
        // Only what is committed is trusted: an uncommitted renewal would outlive the database's
        // view of it.
        session.commit().await?;
        crash_point!("lease.committed");
        self.board.given_up(&deserted_here);
        self.board.note_takeovers(&taken_over);
        self.board.set(&owned, valid_until);
        self.progress.step();
        // With this process, which may have something to tell though it has no share.
        let known = 1 + others;
        self.members
            .send_if_modified(|members| std::mem::replace(members, known) != known);
        let is_advanced = advanced.is_some();
        let layout = advanced.or(layout);
        let pause = match is_advanced {
            // What follows from it is to be done now.
            true => Duration::ZERO,
            false => self.pause(layout.as_ref()),
        };
        if let (Some(seat), Some(layout)) = (&self.seat, layout) {
            seat.committed(layout, is_advanced);
        }
        Ok(pause)
    }

    /// Until the next tick: shorter while a layout is on its way to another, since all processes
    /// wait for each other then.
    fn pause(&self, layout: Option<&Layout>) -> Duration {
        let moves = layout.is_some_and(|layout| layout.next().is_some());
        match moves {
            true => self.ttl / (4 * TICKS_PER_TTL),
            false => self.ttl / TICKS_PER_TTL,
        }
    }
}

async fn changed(fitness: &mut tokio::sync::watch::Receiver<Fitness>) {
    if fitness.changed().await.is_err() {
        // Its supervisor is gone, and nobody is there to be fit again.
        std::future::pending::<()>().await;
    }
}

async fn called(news: &mut Option<WakeListener>) {
    match news {
        Some(news) => news.called().await,
        None => std::future::pending().await,
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
        let resource = board.resource();
        store.leave(&mut session, &resource, member).await?;
        if let Resource::Partitions { consumer, .. } = &resource {
            store.unwish(&mut session, consumer, member).await?;
        }
    }
    session.commit().await
}
