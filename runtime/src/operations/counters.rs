use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::outbox::Settled;

/// What this process has done since it started. Monotonic; the tables are the truth, these are for
/// dashboards.
#[derive(Debug, Default)]
pub struct Counters {
    dispatched: AtomicU64,
    dispatch_failures: AtomicU64,
    dispatch_lost: AtomicU64,
    discarded: AtomicU64,
    handled: AtomicU64,
    duplicates: AtomicU64,
    held: AtomicU64,
    dead_letters: AtomicU64,
    panics: AtomicU64,
}

/// The values of [`Counters`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Outbox rows that were confirmed, routed, and settled.
    pub dispatched: u64,
    /// Failed dispatches of rows, returned or refused, that are tried again.
    pub dispatch_failures: u64,
    /// Rows that were not settled since their lanes had been lost: their new owners publish them,
    /// perhaps again.
    pub dispatch_lost: u64,
    /// Messages that were dropped by policy since no queue takes them, each on record.
    pub discarded: u64,
    /// Messages whose handler's effects were committed.
    pub handled: u64,
    /// Deliveries that the inbox refused.
    pub duplicates: u64,
    /// Deliveries that went into the retry table, successors among them.
    pub held: u64,
    /// Messages that were set aside, at both ends.
    pub dead_letters: u64,
    /// Calls of handlers that panicked.
    pub panics: u64,
}

impl Counters {
    pub(crate) fn add_dispatched(&self, settled: &Settled) {
        self.dispatched
            .fetch_add(settled.dispatched as u64, Relaxed);
        self.dispatch_failures
            .fetch_add(settled.failed as u64, Relaxed);
        self.dispatch_lost.fetch_add(settled.lost as u64, Relaxed);
        self.discarded.fetch_add(settled.discarded as u64, Relaxed);
        self.dead_letters.fetch_add(settled.dead as u64, Relaxed);
    }

    pub(crate) fn add_handled(&self, handled: u64, duplicates: u64, held: usize, dead: usize) {
        self.handled.fetch_add(handled, Relaxed);
        self.duplicates.fetch_add(duplicates, Relaxed);
        self.held.fetch_add(held as u64, Relaxed);
        self.dead_letters.fetch_add(dead as u64, Relaxed);
    }

    pub(crate) fn add_panic(&self) {
        self.panics.fetch_add(1, Relaxed);
    }

    pub(crate) fn counts(&self) -> Counts {
        Counts {
            dispatched: self.dispatched.load(Relaxed),
            dispatch_failures: self.dispatch_failures.load(Relaxed),
            dispatch_lost: self.dispatch_lost.load(Relaxed),
            discarded: self.discarded.load(Relaxed),
            handled: self.handled.load(Relaxed),
            duplicates: self.duplicates.load(Relaxed),
            held: self.held.load(Relaxed),
            dead_letters: self.dead_letters.load(Relaxed),
            panics: self.panics.load(Relaxed),
        }
    }
}
