use std::time::{Duration, Instant};

/// Whether a concern does its work: what those go by who keep its leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fitness {
    /// Its children run, as far as is known.
    #[default]
    Fit,
    /// One of them has failed several times in a row. They are tried again, and do the work that no
    /// other process would do.
    OnTrial,
    /// It is being rebuilt: none of them runs.
    Resting,
}

/// Failures in a row, without a stable run between them, after which a child's concern is on trial:
/// before the backoffs between them are long enough to be missed.
pub(super) const FAILURES_FIT_MAX: u32 = 3;

/// The longest trial, in stable runs.
const TRIAL_PART_MAX: u32 = 20;

/// A concern's trial: it is over after a run without a failure that is as long as a stable run, and
/// twice as long each time that it fails again soon after.
///
/// With others there a concern on trial has nothing to do, so its trial proves little. Whether it
/// works shows when it has work again: those rounds, which cost its part of the work a hand-over
/// each, are to be rare.
#[derive(Debug)]
pub(super) struct Trial {
    stable: Duration,
    length: Duration,
    /// While it is on trial: until when, if nothing fails.
    until: Option<Instant>,
    /// When the last one was over.
    passed: Option<Instant>,
}

impl Trial {
    pub(super) fn new(stable: Duration) -> Self {
        Self {
            stable,
            length: stable,
            until: None,
            passed: None,
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }

    /// How long nothing may fail.
    pub(super) fn length(&self) -> Duration {
        self.length
    }

    /// Begins, unless it is on.
    pub(super) fn begin(&mut self, now: Instant) {
        if self.is_on() {
            return self.begin_anew(now);
        }
        let soon = |passed: Instant| now.saturating_duration_since(passed) < self.length * 2;
        self.length = match self.passed {
            Some(passed) if soon(passed) => (self.length * 2).min(self.stable * TRIAL_PART_MAX),
            _ => self.stable,
        };
        self.until = Some(now + self.length);
    }

    /// Something has failed, or was started: if it is on, its time counts from now.
    pub(super) fn begin_anew(&mut self, now: Instant) {
        if let Some(until) = &mut self.until {
            *until = now + self.length;
        }
    }

    /// Whether it is just over.
    #[must_use]
    pub(super) fn is_passed(&mut self, now: Instant) -> bool {
        let passed = self.until.take_if(|until| *until <= now).is_some();
        if passed {
            self.passed = Some(now);
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_over_after_a_stable_run_and_longer_for_who_fails_again_soon() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut trial = Trial::new(Duration::from_secs(30));
        trial.begin_anew(at(0));
        assert!(!trial.is_on() && !trial.is_passed(at(1_000)));
        trial.begin(at(0));
        assert!(trial.is_on() && !trial.is_passed(at(29)));
        trial.begin_anew(at(29));
        assert!(!trial.is_passed(at(58)) && trial.is_passed(at(59)));
        assert!(!trial.is_on());
        trial.begin(at(100));
        assert!(!trial.is_passed(at(159)) && trial.is_passed(at(160)));
        trial.begin(at(1_000));
        assert!(trial.is_passed(at(1_030)), "that was long ago");
        let mut now = 1_030;
        for _ in 0..20 {
            trial.begin(at(now));
            now += trial.length().as_secs();
            assert!(trial.is_passed(at(now)));
        }
        assert_eq!(trial.length(), Duration::from_secs(600));
    }
}
