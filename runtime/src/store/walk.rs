use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::message::Slot;

/// After a walk of at most this many steps the next may follow at once: it takes a few
/// milliseconds.
const STEPS_FREE: u64 = 1_000;
/// How long to pause for each step of a longer one. A step takes some ten microseconds; so walks
/// take a twentieth of all time.
const PAUSE_PER_STEP: Duration = Duration::from_micros(200);

/// When the keys of a table may be walked over again, part by part.
///
/// A walk heals what hardly ever breaks, and takes a step a key: with ten keys it costs nothing
/// and is made each time; with a hundred thousand (everything that a consumer depends on is down)
/// it takes a second and must not be made at each poll. Not on SQLite either, where what follows a
/// look holds the one write lock.
#[derive(Debug, Default)]
pub(crate) struct Walks {
    next: Mutex<HashMap<Part, Instant>>,
}

/// What is walked over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// A consumer's keys in these slots of the retry table.
    Retry(String, RangeInclusive<u8>),
    /// The keys of these lanes of the outbox that have rows behind.
    Behind(Vec<Slot>),
    /// The fronts of these lanes of the outbox.
    Front(Vec<Slot>),
}

/// A walk that may be made now; one that fails is forgotten.
pub(crate) struct Walk<'w> {
    walks: &'w Walks,
    part: Part,
}

impl Walks {
    /// Begins a walk, or says how long to wait for the next.
    pub(crate) fn begin(&self, part: Part) -> Result<Walk<'_>, Duration> {
        let next = self.next().get(&part).copied();
        match next.map(|next| next.saturating_duration_since(Instant::now())) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => Ok(Walk { walks: self, part }),
        }
    }

    fn next(&self) -> MutexGuard<'_, HashMap<Part, Instant>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Walk<'_> {
    /// Notes how long it was, and how much it found. One that found something may be followed at
    /// once: by whoever looked whether there is something, to take it.
    pub(crate) fn end(self, steps: u64, found: usize) {
        self.end_with(if found > 0 { 0 } else { steps }, Duration::ZERO);
    }

    /// Notes how long it was, with a pause that is kept however short that is.
    pub(crate) fn end_with(self, steps: u64, pause_min: Duration) {
        let mut pause = pause_min;
        if steps > STEPS_FREE {
            let steps = u32::try_from(steps).unwrap_or(u32::MAX);
            pause = pause.max(PAUSE_PER_STEP.saturating_mul(steps));
        }
        let now = Instant::now();
        let mut next = self.walks.next();
        // Lanes come and go: what is over is of no use to anybody.
        next.retain(|_, next| *next > now);
        if pause.is_zero() {
            next.remove(&self.part);
        } else {
            next.insert(self.part, now + pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_walk_is_not_made_again_at_once() {
        let walks = Walks::default();
        let part = |slots| Part::Retry("c".to_owned(), slots);
        let walk = || walks.begin(part(0..=63));
        walk()
            .unwrap_or_else(|_| panic!("none was made"))
            .end(STEPS_FREE, 0);
        walk()
            .unwrap_or_else(|_| panic!("the last was short"))
            .end(100_000, 1);
        walk()
            .unwrap_or_else(|_| panic!("the last found something"))
            .end(100_000, 0);
        let wait = walk().err().expect("the last was long");
        assert!(
            wait > Duration::from_secs(10) && wait <= Duration::from_secs(20),
            "{wait:?}"
        );
        assert!(walks.begin(part(0..=31)).is_ok(), "another part");
        let lanes = || walks.begin(Part::Behind(Vec::new()));
        lanes()
            .unwrap_or_else(|_| panic!("none was made"))
            .end_with(1, Duration::from_secs(60));
        assert!(lanes().is_err(), "it pauses though it was short");
        assert!(walk().is_err(), "the other still pauses");
    }
}
