use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::suspicion::Suspicion;
use crate::broker::PartitionQueue;
use crate::layout::LayoutWatch;
use crate::lease::Board;
use crate::supervision::{Concern, Progress};

/// An actor that is looked at.
#[derive(Clone)]
pub(crate) struct Subject {
    /// Who starts it again.
    pub(crate) concern: Concern,
    /// Its name.
    pub(crate) child: Arc<str>,
    /// What it says of itself.
    pub(crate) progress: Progress,
    /// Where its leases are, or those that it keeps.
    pub(crate) board: Board,
    /// What it is held against.
    pub(crate) kind: Kind,
}

/// What kinds of actors there are to look at.
#[derive(Clone)]
pub(crate) enum Kind {
    /// It serves the lanes with `number % of == index`, and waits for the broker's word on one wave
    /// for so long at most.
    Dispatcher {
        index: u8,
        of: u8,
        patience: Duration,
    },
    /// It reads this queue, of the layout in use, and is at work for so long at most without a step.
    Partition {
        queue: PartitionQueue,
        layout: LayoutWatch,
        patience: Duration,
    },
    /// It looks every second or so whether a layout is to be moved, and is at one look for so long
    /// at most without a step.
    Mover { patience: Duration },
    /// It renews what is on the board, once per lease period at least.
    Keeper { ttl: Duration },
}

/// Everybody who is looked at, at any time. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Subjects {
    all: Arc<Mutex<Vec<Looked>>>,
}

/// A subject, and what was found of it so far.
pub(super) struct Looked {
    pub(super) subject: Subject,
    pub(super) suspicion: Suspicion,
}

impl Subjects {
    /// From now on.
    pub(crate) fn add(&self, subject: Subject) {
        let suspicion = Suspicion::new(&subject.progress, Instant::now());
        self.lock().push(Looked { subject, suspicion });
    }

    pub(super) fn all(&self) -> Vec<Subject> {
        let all = self.lock();
        all.iter().map(|looked| looked.subject.clone()).collect()
    }

    /// Does something with what was found of one so far; `None` if it is looked at no longer.
    pub(super) fn with<T>(&self, child: &str, with: impl FnOnce(&mut Suspicion) -> T) -> Option<T> {
        let mut all = self.lock();
        let looked = all
            .iter_mut()
            .find(|looked| *looked.subject.child == *child)?;
        Some(with(&mut looked.suspicion))
    }

    /// Forgets everything that was found.
    pub(super) fn forget(&self) {
        let now = Instant::now();
        for looked in self.lock().iter_mut() {
            looked.suspicion = Suspicion::new(&looked.subject.progress, now);
        }
    }

    /// Looks no longer at those who are gone.
    pub(super) fn keep(&self, keep: impl Fn(&str) -> bool) {
        self.lock().retain(|looked| keep(&looked.subject.child));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Looked>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
