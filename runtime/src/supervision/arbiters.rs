use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};
use std::time::Instant;

use actix::{Arbiter, ArbiterHandle};

/// Beats in a row without an answer after which an arbiter counts as blocked.
pub(crate) const BEATS_MISSED_MAX: u32 = 8;

/// One that stays blocked for so many times as long as it took to find that out cannot be expected
/// back, and nobody in this process can take from its thread what it holds: a transaction, a
/// connection.
const BLOCKED_SPANS_MAX: u32 = 4;

/// Most arbiters that are left behind: each keeps its thread. What blocks so many is not mended by
/// one more.
const BLOCKED_MAX: usize = 16;

/// The threads that children live on.
///
/// The first is the supervisors' own; nothing of the application's runs there, so they, the lease
/// keepers and whoever looks after the rest are never held up by a handler. The others have a
/// **pulse**: at each beat they are asked to answer. One that has not answered for
/// [`BEATS_MISSED_MAX`] beats is blocked: a handler that never yields. Its thread cannot be ended,
/// so it is replaced by a fresh one, and stopped when it answers again.
#[derive(Clone)]
pub(crate) struct Arbiters {
    shared: Arc<Shared>,
}

struct Shared {
    seats: Mutex<Vec<Seat>>,
    blocked: Mutex<Vec<Blocked>>,
    next: AtomicUsize,
    seats_made: AtomicU64,
}

struct Seat {
    arbiter: Arbiter,
    pulse: Arc<Pulse>,
    missed: u32,
}

/// An arbiter that does not answer, or has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    /// Which one.
    pub(crate) seat: u64,
    /// The child that was last seen running on it, if it has not ended altogether.
    pub(crate) child: Option<Arc<str>>,
}

struct Blocked {
    seat: Seat,
    child: Option<Arc<str>>,
    since: Instant,
    /// Since it was found.
    beats: u32,
}

/// An arbiter that is blocked.
#[derive(Clone, Debug)]
pub(crate) struct BlockedArbiter {
    /// The child that was last seen running on it.
    pub(crate) child: Option<Arc<str>>,
    /// When that was found.
    pub(crate) since: Instant,
    /// Whether it has been for so long that it cannot be expected back.
    pub(crate) is_hopeless: bool,
}

impl Arbiters {
    /// Makes so many for children, and the supervisors' own.
    pub(crate) fn new(count: usize) -> Self {
        let shared = Shared {
            seats: Mutex::default(),
            blocked: Mutex::default(),
            next: AtomicUsize::new(0),
            seats_made: AtomicU64::new(0),
        };
        let seats = (0..=count).map(|_| shared.seat()).collect();
        *shared.seats() = seats;
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The supervisors' own.
    pub(crate) fn own(&self) -> ArbiterHandle {
        self.shared.seats()[0].arbiter.handle()
    }

    /// The place of the next child that is spread over the others.
    pub(crate) fn next_place(&self) -> usize {
        let places = self.shared.seats().len() - 1;
        1 + self.shared.next.fetch_add(1, Ordering::Relaxed) % places
    }

    /// Who sits at a place now; 0 is the supervisors' own.
    pub(super) fn at(&self, place: usize) -> (ArbiterHandle, Arc<Pulse>) {
        let seats = self.shared.seats();
        let seat = &seats[place];
        (seat.arbiter.handle(), seat.pulse.clone())
    }

    /// Asks all for an answer, and replaces those that have given none for too long; returns those.
    pub(super) fn beat(&self) -> Vec<Lost> {
        let mut lost = Vec::new();
        let mut seats = self.shared.seats();
        for seat in seats.iter_mut().skip(1) {
            let alive = seat.beat();
            if alive && seat.missed < BEATS_MISSED_MAX {
                continue;
            }
            if alive && self.shared.blocked().len() >= BLOCKED_MAX {
                continue;
            }
            let child = seat.pulse.running().filter(|_| alive);
            lost.push(Lost {
                seat: seat.pulse.seat,
                child: child.clone(),
            });
            let seat = std::mem::replace(seat, self.shared.seat());
            if alive {
                self.shared.blocked().push(Blocked {
                    seat,
                    child,
                    since: Instant::now(),
                    beats: 0,
                });
            }
        }
        drop(seats);
        self.shared.blocked().retain_mut(|blocked| {
            blocked.beats = blocked.beats.saturating_add(1);
            let still = blocked.seat.beat() && blocked.seat.missed > 0;
            if !still {
                tracing::warn!(child = ?blocked.child, "a blocked arbiter answers again: it is ended");
                // What lives on it was told to end, and is dropped with it at the latest.
                blocked.seat.arbiter.stop();
            }
            still
        });
        lost
    }

    /// Those that are blocked.
    pub(crate) fn blocked(&self) -> Vec<BlockedArbiter> {
        let blocked = self.shared.blocked();
        let too_many = blocked.len() >= BLOCKED_MAX;
        let view = |blocked: &Blocked| BlockedArbiter {
            child: blocked.child.clone(),
            since: blocked.since,
            is_hopeless: too_many || blocked.beats >= BEATS_MISSED_MAX * BLOCKED_SPANS_MAX,
        };
        blocked.iter().map(view).collect()
    }

    /// Whether a thread is that of a blocked arbiter.
    pub(crate) fn is_blocked(&self, thread: ThreadId) -> bool {
        let blocked = self.shared.blocked();
        blocked
            .iter()
            .any(|blocked| blocked.seat.pulse.thread.get() == Some(&thread))
    }

    /// Ends them all; those that are blocked when they answer again.
    pub(crate) fn stop(&self) {
        let stop = |seat: &Seat| {
            // `false`: it has ended already.
            let _ = seat.arbiter.stop();
        };
        self.shared.seats().iter().for_each(stop);
        let blocked = self.shared.blocked();
        blocked.iter().for_each(|blocked| stop(&blocked.seat));
    }
}

impl Shared {
    fn seat(&self) -> Seat {
        let pulse = Arc::new(Pulse {
            seat: self.seats_made.fetch_add(1, Ordering::Relaxed),
            asked: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            running: Mutex::default(),
            thread: OnceLock::new(),
        });
        let arbiter = Arbiter::new();
        let of_it = pulse.clone();
        // `false`: it has ended at once; the next beat sees that.
        let _ = arbiter.spawn_fn(move || {
            let _ = of_it.thread.set(thread::current().id());
        });
        Seat {
            arbiter,
            pulse,
            missed: 0,
        }
    }

    // Nothing panics while holding them; if it did, they would still be whole.
    fn seats(&self) -> MutexGuard<'_, Vec<Seat>> {
        self.seats.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blocked(&self) -> MutexGuard<'_, Vec<Blocked>> {
        self.blocked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seat {
    /// Asks for an answer, unless one is outstanding; `false` if the arbiter has ended.
    fn beat(&mut self) -> bool {
        let asked = self.pulse.asked.load(Ordering::Acquire);
        if self.pulse.answered.load(Ordering::Acquire) < asked {
            self.missed = self.missed.saturating_add(1);
            return true;
        }
        self.missed = 0;
        let (pulse, asked) = (self.pulse.clone(), asked + 1);
        self.pulse.asked.store(asked, Ordering::Release);
        self.arbiter
            .spawn_fn(move || pulse.answered.store(asked, Ordering::Release))
    }
}

/// Whether an arbiter answers, and what runs on it just now.
pub(super) struct Pulse {
    pub(super) seat: u64,
    asked: AtomicU64,
    answered: AtomicU64,
    running: Mutex<Option<Arc<str>>>,
    thread: OnceLock<ThreadId>,
}

impl Pulse {
    /// Has it known who runs while `body` is polled.
    pub(super) fn watch<F: Future>(
        self: Arc<Self>,
        name: Arc<str>,
        body: F,
    ) -> impl Future<Output = F::Output> {
        Watched {
            pulse: self,
            name,
            body: Box::pin(body),
        }
    }

    fn running(&self) -> Option<Arc<str>> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<str>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Watched<F> {
    pulse: Arc<Pulse>,
    name: Arc<str>,
    body: Pin<Box<F>>,
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        *self.pulse.lock() = Some(self.name.clone());
        let poll = self.body.as_mut().poll(context);
        // Not after a panic: the next one's name takes its place.
        *self.pulse.lock() = None;
        poll
    }
}
