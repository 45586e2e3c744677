use std::time::Duration;

use super::{HandleError, Nature};
use crate::dead_letter::Reason;
use crate::retry::RetryPolicy;

/// A handler's own delay is at most this: a year.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// What is to become of a message whose try has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Tried again, at once.
    AtOnce,
    /// Tried again after this long.
    Later(Duration),
    /// Set aside.
    DeadLetter(Reason),
}

impl Verdict {
    /// Judges the failure of a try, counted from 1, by the message's policy.
    pub(super) fn of(policy: &RetryPolicy, attempt: u32, error: &HandleError) -> Self {
        let used_up = match error {
            HandleError::Decode(_) => return Self::DeadLetter(Reason::Undecodable),
            HandleError::Panicked(_) => Reason::Panicked,
            HandleError::Deadline(_) => Reason::Deadline,
            HandleError::Extract(_) | HandleError::Failed(_) => Reason::Failed,
        };
        let nature = match error {
            HandleError::Failed(failure) => failure.nature(),
            _ => Nature::Transient,
        };
        match nature {
            Nature::Permanent => Self::DeadLetter(Reason::Permanent),
            Nature::DeadLetter => Self::DeadLetter(Reason::DeadLettered),
            _ if attempt >= policy.attempts_max => Self::DeadLetter(used_up),
            Nature::RetryAfter(delay) => Self::Later(delay.min(RETRY_AFTER_MAX)),
            Nature::Transient if attempt <= policy.immediate => Self::AtOnce,
            Nature::Transient => Self::Later(policy.delay(attempt)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Failure;
    use crate::message::DecodeError;
    use crate::supervision::Caught;

    fn policy() -> RetryPolicy {
        let (base, cap) = (Duration::from_secs(1), Duration::from_secs(4));
        RetryPolicy::default()
            .attempts_max(4)
            .immediate(1)
            .backoff(base, cap)
    }

    fn verdict(attempt: u32, error: &HandleError) -> Verdict {
        Verdict::of(&policy(), attempt, error)
    }

    #[test]
    fn a_transient_failure_is_tried_at_once_then_later_then_never() {
        let error = HandleError::Failed(Failure::new("no"));
        assert_eq!(verdict(1, &error), Verdict::AtOnce);
        for (attempt, longest) in [(2, 1), (3, 2)] {
            let Verdict::Later(delay) = verdict(attempt, &error) else {
                panic!("try {attempt}")
            };
            assert!(delay <= Duration::from_secs(longest));
        }
        for attempt in [4, 5, u32::MAX] {
            assert_eq!(
                verdict(attempt, &error),
                Verdict::DeadLetter(Reason::Failed)
            );
        }
    }

    #[test]
    fn the_last_failures_kind_is_the_reason() {
        let panicked = HandleError::Panicked(Caught::default());
        let late = HandleError::Deadline(Duration::ZERO);
        assert_eq!(verdict(4, &panicked), Verdict::DeadLetter(Reason::Panicked));
        assert_eq!(verdict(4, &late), Verdict::DeadLetter(Reason::Deadline));
        assert_eq!(verdict(1, &panicked), Verdict::AtOnce);
    }

    #[test]
    fn a_failure_that_knows_more_is_believed() {
        let day = Duration::from_secs(86_400);
        for (failure, expected) in [
            (
                Failure::permanent("no"),
                Verdict::DeadLetter(Reason::Permanent),
            ),
            (
                Failure::dead_letter("no"),
                Verdict::DeadLetter(Reason::DeadLettered),
            ),
            (Failure::retry_after(day, "no"), Verdict::Later(day)),
            (
                Failure::retry_after(Duration::MAX, "no"),
                Verdict::Later(RETRY_AFTER_MAX),
            ),
        ] {
            assert_eq!(verdict(1, &HandleError::Failed(failure)), expected);
        }
        let later = HandleError::Failed(Failure::retry_after(day, "no"));
        assert_eq!(verdict(4, &later), Verdict::DeadLetter(Reason::Failed));
        let undecodable = HandleError::Decode(DecodeError::new("no"));
        assert_eq!(
            verdict(1, &undecodable),
            Verdict::DeadLetter(Reason::Undecodable)
        );
    }
}
