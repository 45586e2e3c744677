use std::collections::VecDeque;
use std::fmt;
use std::time::{Duration, Instant};

/// Failures of one child within [`RESTART_WINDOW_DEFAULT`] that its supervisor bears, unless the
/// configuration says otherwise. A child that fails at each start has failed so often after 51 s at
/// the latest: the backoffs before its starts add up to that.
pub const RESTARTS_DEFAULT: u32 = 10;
/// How long a child's failure counts, unless the configuration says otherwise.
pub const RESTART_WINDOW_DEFAULT: Duration = Duration::from_secs(120);
/// Rebuilds of one concern within [`REBUILD_WINDOW_DEFAULT`] that the root bears, unless the
/// configuration says otherwise.
pub const REBUILDS_DEFAULT: u32 = 3;
/// How long a rebuild counts, unless the configuration says otherwise.
pub const REBUILD_WINDOW_DEFAULT: Duration = Duration::from_secs(900);
/// Fewest failures of a budget: 0 would pass on the first one.
pub const BUDGET_FAILURES_MIN: u32 = 0;
/// Most failures of a budget: what is more often is no budget.
pub const BUDGET_FAILURES_MAX: u32 = 1_000;
/// Shortest window of a budget.
pub const BUDGET_WINDOW_MIN: Duration = Duration::from_secs(1);
/// Longest window of a budget.
pub const BUDGET_WINDOW_MAX: Duration = Duration::from_secs(24 * 60 * 60);

const _: () = assert!(RESTARTS_DEFAULT <= BUDGET_FAILURES_MAX);
const _: () = assert!(REBUILDS_DEFAULT <= BUDGET_FAILURES_MAX);
const _: () = assert!(BUDGET_WINDOW_MIN.as_secs() <= RESTART_WINDOW_DEFAULT.as_secs());
const _: () = assert!(REBUILD_WINDOW_DEFAULT.as_secs() <= BUDGET_WINDOW_MAX.as_secs());

/// How many failures a supervisor bears within which time; with one more it passes the failure on
/// to who is above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Failures that are borne, 0 to 1,000; 0 passes on the first one.
    pub failures: u32,
    /// For how long each of them counts, 1 s to 24 h.
    pub window: Duration,
}

impl Budget {
    /// A child's: 10 failures within 120 s.
    pub const RESTARTS: Self = Self::new(RESTARTS_DEFAULT, RESTART_WINDOW_DEFAULT);
    /// A concern's: 3 rebuilds within 15 min.
    pub const REBUILDS: Self = Self::new(REBUILDS_DEFAULT, REBUILD_WINDOW_DEFAULT);

    /// So many failures within so long.
    #[must_use]
    pub const fn new(failures: u32, window: Duration) -> Self {
        Self { failures, window }
    }

    /// Every rule that it breaks.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        if self.failures > BUDGET_FAILURES_MAX {
            mistakes.push(format!(
                "{} failures; they must be {BUDGET_FAILURES_MIN} to {BUDGET_FAILURES_MAX}",
                self.failures
            ));
        }
        if !(BUDGET_WINDOW_MIN..=BUDGET_WINDOW_MAX).contains(&self.window) {
            mistakes.push(format!(
                "a window of {:?}; it must be {BUDGET_WINDOW_MIN:?} to {BUDGET_WINDOW_MAX:?}",
                self.window
            ));
        }
        mistakes
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} within {:?}", self.failures, self.window)
    }
}

/// What becomes of a runtime that has failed: a concern was rebuilt too often, or the thread of an
/// arbiter stays blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PastBudget {
    /// It stays up, says in its health that it has failed and why, and goes on trying at the
    /// longest backoff; after a stable run it is healthy again.
    #[default]
    StayUnhealthy,
    /// It drains, and [`crate::Posta::run_until_signal`] and [`crate::Posta::ended`] return an
    /// error with the reason, so that `main` exits with an error for the platform to start anew.
    Exit,
}

impl fmt::Display for PastBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StayUnhealthy => "stay up, unhealthy",
            Self::Exit => "drain and exit",
        })
    }
}

/// The failures that count against a budget: never more than the budget and one.
#[derive(Debug, Default)]
pub(super) struct Spent {
    times: VecDeque<Instant>,
}

impl Spent {
    /// Counts a failure; whether the budget still bears it.
    #[must_use]
    pub(super) fn is_borne(&mut self, budget: Budget, now: Instant) -> bool {
        self.times
            .retain(|at| now.saturating_duration_since(*at) < budget.window);
        self.times.push_back(now);
        while self.times.len() > budget.failures as usize + 1 {
            self.times.pop_front();
        }
        self.times.len() <= budget.failures as usize
    }

    /// What was is over.
    pub(super) fn forget(&mut self) {
        self.times.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_bears_so_many_failures_and_forgets_old_ones() {
        let budget = Budget::new(2, Duration::from_secs(10));
        let (mut spent, start) = (Spent::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(spent.is_borne(budget, at(0)) && spent.is_borne(budget, at(5)));
        assert!(spent.is_borne(budget, at(11)), "the first one is forgotten");
        assert!(!spent.is_borne(budget, at(12)));
        assert!(!spent.is_borne(budget, at(13)));
        assert!(spent.times.len() <= 3);
        assert!(spent.is_borne(budget, at(40)));
        spent.forget();
        assert!(!spent.is_borne(Budget::new(0, budget.window), at(41)));
    }

    #[test]
    fn a_child_that_always_fails_spends_the_default_budget() {
        let backoff = super::super::RESTART_BACKOFF;
        let restarts = 1..=RESTARTS_DEFAULT;
        let longest: Duration = restarts.map(|failures| backoff.ceiling(failures)).sum();
        assert!(longest < RESTART_WINDOW_DEFAULT, "{longest:?}");
    }

    #[test]
    fn a_budget_names_what_it_breaks() {
        assert!(Budget::RESTARTS.mistakes().is_empty());
        assert!(Budget::REBUILDS.mistakes().is_empty());
        assert_eq!(
            Budget::new(1_001, Duration::ZERO).mistakes(),
            [
                "1001 failures; they must be 0 to 1000",
                "a window of 0ns; it must be 1s to 86400s"
            ]
        );
    }
}
