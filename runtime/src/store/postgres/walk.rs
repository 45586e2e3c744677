use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// After a walk of at most this many steps the next may follow at once: it takes a few
/// milliseconds.
const STEPS_FREE: u64 = 1_000;
/// How long to pause for each step of a longer one. A step takes some ten microseconds; so walks
/// take a twentieth of all time.
const PAUSE_PER_STEP: Duration = Duration::from_micros(200);

/// When the keys of the retry table may be walked over again, per consumer and range of slots.
///
/// The walk heals what hardly ever breaks, and takes a step a key: with ten keys it costs nothing
/// and is made each time; with a hundred thousand (everything that a consumer depends on is down)
/// it takes a second and must not be made at each poll.
#[derive(Debug, Default)]
pub(super) struct Walks {
    next: Mutex<HashMap<Part, Instant>>,
}

type Part = (String, RangeInclusive<u8>);

/// A walk that may be made now; one that fails is forgotten.
pub(super) struct Walk<'w> {
    walks: &'w Walks,
    part: Part,
}

impl Walks {
    /// Begins a walk, or says how long to wait for the next.
    pub(super) fn begin(
        &self,
        consumer: &str,
        slots: &RangeInclusive<u8>,
    ) -> Result<Walk<'_>, Duration> {
        let part = (consumer.to_owned(), slots.clone());
        let next = self
            .next
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&part)
            .copied();
        match next.map(|next| next.saturating_duration_since(Instant::now())) {
            Some(wait) if !wait.is_zero() => Err(wait),
            _ => Ok(Walk { walks: self, part }),
        }
    }
}

impl Walk<'_> {
    /// Notes how long it was.
    pub(super) fn end(self, steps: u64) {
        let mut next = self
            .walks
            .next
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if steps <= STEPS_FREE {
            next.remove(&self.part);
        } else {
            let pause = PAUSE_PER_STEP.saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX));
            next.insert(self.part, Instant::now() + pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_walk_is_not_made_again_at_once() {
        let walks = Walks::default();
        let walk = || walks.begin("c", &(0..=63));
        walk()
            .unwrap_or_else(|_| panic!("none was made"))
            .end(STEPS_FREE);
        walk()
            .unwrap_or_else(|_| panic!("the last was short"))
            .end(100_000);
        let wait = walk().err().expect("the last was long");
        assert!(
            wait > Duration::from_secs(10) && wait <= Duration::from_secs(20),
            "{wait:?}"
        );
        assert!(walks.begin("c", &(0..=31)).is_ok(), "another part");
    }
}
