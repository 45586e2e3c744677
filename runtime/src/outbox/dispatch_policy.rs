use std::fmt;
use std::time::Duration;

use crate::retry::{AfterDeadLetter, Backoff};

/// Most attempts that a policy may ask for; with the longest backoff of the default policy, a week.
pub const ATTEMPTS_MAX: u32 = 10_000;
/// Attempts unless the policy says otherwise: with the default backoff, about 50 minutes on average
/// and an hour and a half at most.
pub const ATTEMPTS_DEFAULT: u32 = 100;
/// Shortest base of a backoff: a row that comes back at once must not spin.
pub const BACKOFF_BASE_MIN: Duration = Duration::from_millis(1);
/// Longest cap of a backoff.
pub const BACKOFF_CAP_MAX: Duration = Duration::from_secs(24 * 3600);
/// Between attempts unless the policy says otherwise.
pub const BACKOFF_DEFAULT: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

const _: () = assert!(1 <= ATTEMPTS_DEFAULT && ATTEMPTS_DEFAULT <= ATTEMPTS_MAX);
const _: () = assert!(BACKOFF_DEFAULT.base().as_millis() >= BACKOFF_BASE_MIN.as_millis());
const _: () = assert!(BACKOFF_DEFAULT.cap().as_millis() <= BACKOFF_CAP_MAX.as_millis());

/// What becomes of a message that the broker returns or refuses: how often it is tried, and what
/// comes then. Set for all message types by [`crate::Builder::dispatch`] and for one by
/// [`crate::Builder::dispatch_for`].
///
/// An attempt is a message's own: while the broker cannot be reached, is blocked or too slow,
/// nobody's attempts are counted. A message that is malformed or too large fails at once, whatever
/// `attempts_max` says, since the same again fails again.
///
/// ```
/// use std::time::Duration;
/// use posta::outbox::{DispatchPolicy, Unroutable};
/// use posta::retry::AfterDeadLetter;
///
/// let orders = DispatchPolicy::default()
///     .attempts_max(20)
///     .backoff(Duration::from_millis(200), Duration::from_secs(30))
///     .after_dead_letter(AfterDeadLetter::Parked);
/// // Events that perhaps nobody wants.
/// let events = DispatchPolicy::default().unroutable(Unroutable::Discard);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct DispatchPolicy {
    pub(crate) attempts_max: u32,
    pub(crate) backoff: Backoff,
    pub(crate) unroutable: Unroutable,
    pub(crate) after_dead_letter: AfterDeadLetter,
}

/// What to do with a message that the broker returns since no queue takes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unroutable {
    /// Try again, and set it aside when its attempts are used up: somebody should have taken it.
    #[default]
    DeadLetter,
    /// Drop it at its first attempt, on record (a dead letter in the state *discarded*, with its
    /// bytes, which an operator can restore), and let its key go on: for message types that may
    /// have no subscriber.
    Discard,
}

impl DispatchPolicy {
    /// After so many failed attempts a message becomes a dead letter: 1 to 10,000; 100 by default.
    pub const fn attempts_max(mut self, attempts: u32) -> Self {
        self.attempts_max = attempts;
        self
    }

    /// Between two attempts a message, and its key behind it, is on hold: for a random time up to
    /// `base`, then up to twice as long each time, never more than `cap`; 1 s and 60 s by default.
    /// `base` is at least 1 ms and at most `cap`, `cap` at most 24 h.
    pub const fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.backoff = Backoff::new(base, cap);
        self
    }

    /// What to do with a message that no queue takes; a dead letter in the end by default.
    pub const fn unroutable(mut self, then: Unroutable) -> Self {
        self.unroutable = then;
        self
    }

    /// What becomes of the key of a dead letter; parked by default. No matter for a message without
    /// a key.
    pub const fn after_dead_letter(mut self, then: AfterDeadLetter) -> Self {
        self.after_dead_letter = then;
        self
    }

    /// Every rule that this policy breaks; `of` names it.
    pub(crate) fn mistakes(&self, of: &str) -> Vec<String> {
        let mut mistakes = Vec::new();
        let (base, cap) = (self.backoff.base(), self.backoff.cap());
        if !(1..=ATTEMPTS_MAX).contains(&self.attempts_max) {
            mistakes.push(format!(
                "{of}.attempts_max: {}; it must be 1 to {ATTEMPTS_MAX}",
                self.attempts_max
            ));
        }
        if !(BACKOFF_BASE_MIN..=cap).contains(&base) {
            mistakes.push(format!(
                "{of}.backoff: its base is {base:?}; it must be {BACKOFF_BASE_MIN:?} to its cap, {cap:?}"
            ));
        }
        if cap > BACKOFF_CAP_MAX {
            mistakes.push(format!(
                "{of}.backoff: its cap is {cap:?}; it must be at most {BACKOFF_CAP_MAX:?}"
            ));
        }
        mistakes
    }
}

impl Default for DispatchPolicy {
    fn default() -> Self {
        Self {
            attempts_max: ATTEMPTS_DEFAULT,
            backoff: BACKOFF_DEFAULT,
            unroutable: Unroutable::default(),
            after_dead_letter: AfterDeadLetter::default(),
        }
    }
}

impl fmt::Display for DispatchPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (base, cap) = (self.backoff.base(), self.backoff.cap());
        write!(
            f,
            "{} attempts, {base:?} to {cap:?} apart",
            self.attempts_max
        )?;
        f.write_str(match self.after_dead_letter {
            AfterDeadLetter::Parked => ", then its key is parked",
            AfterDeadLetter::Continues => ", then its key continues",
        })?;
        f.write_str(match self.unroutable {
            Unroutable::DeadLetter => "",
            Unroutable::Discard => "; discarded if unroutable",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_broken_rule_is_told_with_field_value_and_limit() {
        assert!(DispatchPolicy::default().mistakes("dispatch").is_empty());
        let (second, day) = (Duration::from_secs(1), Duration::from_secs(86_400));
        let policy = |attempts, base, cap| {
            let policy = DispatchPolicy::default().attempts_max(attempts);
            policy.backoff(base, cap)
        };
        let mistakes = policy(0, Duration::ZERO, day * 2).mistakes("dispatch");
        assert_eq!(
            mistakes,
            [
                "dispatch.attempts_max: 0; it must be 1 to 10000",
                "dispatch.backoff: its base is 0ns; it must be 1ms to its cap, 172800s",
                "dispatch.backoff: its cap is 172800s; it must be at most 86400s",
            ]
        );
        let mistakes = policy(10_001, second * 2, second).mistakes("dispatch");
        assert_eq!(mistakes.len(), 2);
        assert!(mistakes[1].contains("2s") && mistakes[1].contains("its cap, 1s"));
        let most = policy(10_000, day, day);
        assert!(most.mistakes("dispatch").is_empty());
    }

    #[test]
    fn a_policy_reads_as_a_sentence() {
        let policy = DispatchPolicy::default().unroutable(Unroutable::Discard);
        let text = "100 attempts, 1s to 60s apart, then its key is parked; discarded if unroutable";
        assert_eq!(policy.to_string(), text);
    }
}
