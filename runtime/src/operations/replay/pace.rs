use std::time::Duration;

use crate::store::{ReplayRun, RunCounts};

/// Letters of one step, at most: each is a few statements, and operators wait for them.
const STEP_LETTERS_MAX: u64 = 100;
/// Letters of one run that are on their way at once, at most.
const ON_THEIR_WAY_MAX: u64 = 1_000;

/// How many letters a step may take, and when the next one is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pace {
    /// Letters of this step, at most.
    pub(crate) letters: usize,
    rate: Option<u32>,
}

impl Pace {
    /// The pace of a run whose counts are these.
    pub(crate) fn of(run: &ReplayRun, counts: RunCounts) -> Self {
        let mut room = ON_THEIR_WAY_MAX;
        if let Some(most) = run.failures_max.map(u64::from) {
            // All of those on their way may die: then the run must not have let more than it
            // allows.
            room = room.min(most - counts.failed % most);
        }
        let room = room.saturating_sub(counts.replaying);
        // Half a second's worth at once, so that a high rate needs few steps and a low one few
        // letters.
        let rate = run
            .rate
            .map_or(u64::MAX, |rate| u64::from(rate).div_ceil(2));
        Self {
            letters: room.min(rate).min(STEP_LETTERS_MAX) as usize,
            rate: run.rate,
        }
    }

    /// How long after a step that took so many letters the next one is due; after one that took
    /// none, since the run waits for those on their way, in so long as `patience`.
    pub(crate) fn pause(&self, taken: usize, patience: Duration) -> Duration {
        match (taken, self.rate) {
            (0, _) => patience,
            (_, None) => Duration::ZERO,
            (taken, Some(rate)) => Duration::from_secs_f64(taken as f64 / f64::from(rate)),
        }
    }

    /// Whether a run has to stop: it does at every so many letters that have died again, so that
    /// one that is resumed has as many again.
    pub(crate) fn is_over(run: &ReplayRun, before: RunCounts, now: RunCounts) -> bool {
        run.failures_max
            .map(u64::from)
            .is_some_and(|most| now.failed / most > before.failed / most)
    }
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;
    use crate::store::{RunId, RunState};

    fn run(rate: Option<u32>, failures_max: Option<u32>) -> ReplayRun {
        ReplayRun {
            id: RunId(1),
            state: RunState::Running,
            who: "w".to_owned(),
            reason: "r".to_owned(),
            selection: "s".to_owned(),
            rate,
            failures_max,
            created_at: OffsetDateTime::UNIX_EPOCH,
            ended_at: None,
            counts: RunCounts::default(),
        }
    }

    fn counts(replaying: u64, failed: u64) -> RunCounts {
        RunCounts {
            replaying,
            failed,
            ..RunCounts::default()
        }
    }

    #[test]
    fn no_second_has_more_letters_than_the_rate_after_the_first_step() {
        for rate in [1, 2, 3, 10, 99, 1_000, 100_000] {
            let pace = Pace::of(&run(Some(rate), None), counts(0, 0));
            assert!(pace.letters >= 1);
            let per_second =
                pace.letters as f64 / pace.pause(pace.letters, Duration::ZERO).as_secs_f64();
            assert!(
                per_second <= f64::from(rate) * 1.000_001,
                "{rate}: {per_second}"
            );
        }
        let uncapped = Pace::of(&run(None, None), counts(0, 0));
        assert_eq!(uncapped.pause(100, Duration::MAX), Duration::ZERO);
    }

    #[test]
    fn no_more_are_on_their_way_than_may_die() {
        let run = run(None, Some(5));
        for (replaying, failed, letters) in [
            (0, 0, 5),
            (2, 0, 3),
            (5, 0, 0),
            (2, 3, 0),
            (0, 4, 1),
            (0, 5, 5),
            (9, 0, 0),
        ] {
            let pace = Pace::of(&run, counts(replaying, failed));
            assert_eq!(pace.letters, letters, "{replaying} {failed}");
        }
    }

    #[test]
    fn a_run_stops_at_every_so_many_failures() {
        let run = run(None, Some(3));
        let stops = |before, now| Pace::is_over(&run, counts(0, before), counts(0, now));
        assert!(!stops(0, 2));
        assert!(stops(0, 3));
        assert!(stops(2, 4));
        // Resumed.
        assert!(!stops(3, 3));
        assert!(!stops(3, 5));
        assert!(stops(3, 6));
    }
}
