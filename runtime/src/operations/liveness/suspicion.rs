use std::time::{Duration, Instant};

use super::{Finding, LOOKS_MAX};
use crate::supervision::{Doing, Progress};

/// What the looks at one subject so far have come to.
#[derive(Debug)]
pub(super) struct Suspicion {
    steps: u64,
    /// Since when it has taken no step.
    still_since: Instant,
    difference: Option<String>,
    /// At how many looks in a row that was found.
    looks: u32,
}

impl Suspicion {
    pub(super) fn new(progress: &Progress, now: Instant) -> Self {
        Self {
            steps: progress.steps(),
            still_since: now,
            difference: None,
            looks: 0,
        }
    }

    /// For how long it has been working without a step.
    pub(super) fn at_work_for(&self, progress: &Progress, now: Instant) -> Option<Duration> {
        let still = progress.doing() == Doing::Working && progress.steps() == self.steps;
        still.then(|| now.saturating_duration_since(self.still_since))
    }

    /// Takes a look's finding; the difference if it has lasted.
    pub(super) fn judge(
        &mut self,
        finding: &Finding,
        progress: &Progress,
        now: Instant,
    ) -> Option<String> {
        let steps = progress.steps();
        if std::mem::replace(&mut self.steps, steps) != steps {
            self.still_since = now;
            self.forget();
        }
        let Finding::Different(difference) = finding else {
            self.forget();
            return None;
        };
        if self.difference.as_ref() != Some(difference) {
            self.difference = Some(difference.clone());
            self.looks = 0;
        }
        self.looks += 1;
        if self.looks < LOOKS_MAX {
            return None;
        }
        self.forget();
        self.still_since = now;
        Some(difference.clone())
    }

    fn forget(&mut self) {
        self.difference = None;
        self.looks = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_difference_that_lasts_without_a_step_is_a_failure() {
        let (progress, now) = (Progress::default(), Instant::now());
        let mut suspicion = Suspicion::new(&progress, now);
        let different = |what: &str| Finding::Different(what.to_owned());
        let mut judge = |finding: &Finding| suspicion.judge(finding, &progress, now);
        assert_eq!(judge(&different("a")), None);
        assert_eq!(judge(&different("a")), None);
        assert_eq!(judge(&different("b")), None, "another difference");
        assert_eq!(judge(&different("b")), None);
        assert_eq!(judge(&Finding::Explained), None);
        assert_eq!(judge(&different("b")), None);
        assert_eq!(judge(&different("b")), None);
        progress.step();
        assert_eq!(judge(&different("b")), None, "it has taken a step");
        assert_eq!(judge(&different("b")), None);
        assert_eq!(judge(&different("b")), Some("b".to_owned()));
        assert_eq!(judge(&different("b")), None, "it was started again");
    }

    #[test]
    fn work_without_a_step_is_timed_from_the_last_one() {
        let (progress, start) = (Progress::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut suspicion = Suspicion::new(&progress, start);
        progress.begin(Doing::Waiting);
        assert_eq!(suspicion.at_work_for(&progress, at(50)), None);
        progress.begin(Doing::Working);
        progress.step();
        assert_eq!(suspicion.at_work_for(&progress, at(60)), None);
        assert_eq!(
            suspicion.judge(&Finding::Explained, &progress, at(60)),
            None
        );
        let worked = suspicion.at_work_for(&progress, at(90));
        assert_eq!(worked, Some(Duration::from_secs(30)));
    }
}
