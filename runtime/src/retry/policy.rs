use std::time::Duration;

use super::Backoff;
use crate::message::{AfterDeadLetter, RetryOverride};

/// Tries of a message in all, unless the configuration says otherwise: with the default backoff
/// about an hour.
pub const ATTEMPTS_MAX_DEFAULT: u32 = 15;
/// Most tries that a policy can allow.
pub const ATTEMPTS_MAX: u32 = 1000;
/// The longest delay before the first delayed try, unless the configuration says otherwise.
pub const BASE_DEFAULT: Duration = Duration::from_secs(1);
/// The longest delay between two tries, unless the configuration says otherwise.
pub const CAP_DEFAULT: Duration = Duration::from_secs(15 * 60);
/// The longest delay that a policy can have.
pub const CAP_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a handler may take, unless the configuration says otherwise.
pub const DEADLINE_DEFAULT: Duration = Duration::from_secs(5 * 60);
/// The shortest deadline.
pub const DEADLINE_MIN: Duration = Duration::from_millis(1);
/// The longest deadline: RabbitMQ closes the channel of a consumer that does not acknowledge for 30
/// minutes.
pub const DEADLINE_MAX: Duration = Duration::from_secs(29 * 60);

const _: () = assert!(1 <= ATTEMPTS_MAX_DEFAULT && ATTEMPTS_MAX_DEFAULT <= ATTEMPTS_MAX);
const _: () = assert!(BASE_DEFAULT.as_millis() <= CAP_DEFAULT.as_millis());
const _: () = assert!(CAP_DEFAULT.as_millis() <= CAP_MAX.as_millis());
const _: () = assert!(DEADLINE_MIN.as_millis() <= DEADLINE_DEFAULT.as_millis());
const _: () = assert!(DEADLINE_DEFAULT.as_millis() <= DEADLINE_MAX.as_millis());

/// How often and when a message is tried at a consumer, and what becomes of it then.
///
/// A try that fails is followed by up to `immediate` further ones at once, then by delayed ones
/// with exponential backoff and full jitter, `attempts_max` in all; then the message is a dead
/// letter. Outages of the database or the broker, deadlocks and serialisation failures are nobody's
/// try.
///
/// Of several policies the nearest holds: [`crate::Consumer::retry_for`], then what the message's
/// attribute says part by part, then [`crate::Consumer::retry`], then [`crate::Builder::retry`].
/// Limits are checked when the runtime starts.
///
/// ```
/// use std::time::Duration;
/// use posta::retry::{AfterDeadLetter, RetryPolicy};
///
/// let policy = RetryPolicy::default()
///     .immediate(1)
///     .attempts_max(5)
///     .backoff(Duration::from_millis(200), Duration::from_secs(60))
///     .deadline(Duration::from_secs(30))
///     .after_dead_letter(AfterDeadLetter::Continues);
/// assert!(policy.span_max() < Duration::from_secs(200));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct RetryPolicy {
    pub(crate) immediate: u32,
    pub(crate) backoff: Backoff,
    pub(crate) attempts_max: u32,
    pub(crate) deadline: Duration,
    pub(crate) after_dead_letter: AfterDeadLetter,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            immediate: 0,
            backoff: Backoff::new(BASE_DEFAULT, CAP_DEFAULT),
            attempts_max: ATTEMPTS_MAX_DEFAULT,
            deadline: DEADLINE_DEFAULT,
            after_dead_letter: AfterDeadLetter::Parked,
        }
    }
}

impl RetryPolicy {
    /// Further tries at once after the first, each in a fresh transaction: fewer than
    /// `attempts_max`; none by default.
    pub const fn immediate(mut self, tries: u32) -> Self {
        self.immediate = tries;
        self
    }

    /// Tries in all, 1 to 1,000; 15 by default.
    pub const fn attempts_max(mut self, tries: u32) -> Self {
        self.attempts_max = tries;
        self
    }

    /// The delays before delayed tries: a random time up to `base`, then up to twice as long each
    /// time, never more than `cap`; 1 s and 15 min by default. `base` is at most `cap`, `cap` at
    /// most 24 h.
    pub const fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.backoff = Backoff::new(base, cap);
        self
    }

    /// How long one call of the handler may take, 1 ms to 29 min; 5 min by default. At the deadline
    /// its future is dropped and its connection closed, so the database rolls back. A handler that
    /// blocks its thread is not noticed before it lets go of it.
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    /// What becomes of the key of a dead letter; parked by default. No matter for a message without
    /// a key.
    pub const fn after_dead_letter(mut self, then: AfterDeadLetter) -> Self {
        self.after_dead_letter = then;
        self
    }

    /// The longest time between a message's first try and its last: every delay at its longest,
    /// every try at its deadline. A handler that asks for a later try itself
    /// ([`crate::Failure::retry_after`]) can make it longer.
    #[must_use]
    pub fn span_max(&self) -> Duration {
        let delayed = self
            .attempts_max
            .saturating_sub(self.immediate.saturating_add(1));
        let delays = (1..=delayed.min(ATTEMPTS_MAX)).map(|n| self.backoff.ceiling(n));
        let tries = self.deadline.saturating_mul(self.attempts_max);
        delays.fold(tries, Duration::saturating_add)
    }

    /// A random delay after this many failed tries.
    pub(crate) fn delay(&self, attempt: u32) -> Duration {
        self.backoff
            .delay(attempt.saturating_sub(self.immediate).max(1))
    }

    /// This policy with the parts that a message type sets for itself.
    pub(crate) fn overridden(self, parts: &RetryOverride) -> Self {
        Self {
            immediate: parts.immediate.unwrap_or(self.immediate),
            backoff: Backoff::new(
                parts.base.unwrap_or(self.backoff.base()),
                parts.cap.unwrap_or(self.backoff.cap()),
            ),
            attempts_max: parts.attempts_max.unwrap_or(self.attempts_max),
            deadline: parts.deadline.unwrap_or(self.deadline),
            after_dead_letter: parts.after_dead_letter.unwrap_or(self.after_dead_letter),
        }
    }

    /// Every rule that this policy breaks, each with field, value and limit.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let Self {
            immediate,
            backoff,
            attempts_max,
            deadline,
            ..
        } = self;
        let (base, cap) = (backoff.base(), backoff.cap());
        let rules = [
            (
                (1..=ATTEMPTS_MAX).contains(attempts_max),
                format!("attempts_max: {attempts_max}; it must be 1 to {ATTEMPTS_MAX}"),
            ),
            (
                immediate < attempts_max || *attempts_max == 0,
                format!(
                    "immediate: {immediate}; it must be less than attempts_max, {attempts_max}, \
                     since the first try counts"
                ),
            ),
            (
                base <= cap,
                format!("base: {base:?}; it must not be longer than cap, {cap:?}"),
            ),
            (
                cap <= CAP_MAX,
                format!("cap: {cap:?}; it must not be longer than {CAP_MAX:?}"),
            ),
            (
                (DEADLINE_MIN..=DEADLINE_MAX).contains(deadline),
                format!(
                    "deadline: {deadline:?}; it must be {DEADLINE_MIN:?} to {DEADLINE_MAX:?}, below \
                     the 30 minutes after which RabbitMQ gives up on a consumer"
                ),
            ),
        ];
        let broken = rules.into_iter().filter(|(holds, _)| !holds);
        broken.map(|(_, mistake)| mistake).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_default_keeps_every_rule() {
        assert!(RetryPolicy::default().mistakes().is_empty());
    }

    #[test]
    fn each_broken_rule_is_named_with_value_and_limit() {
        let valid = RetryPolicy::default();
        for (policy, parts) in [
            (valid.attempts_max(0), ["attempts_max: 0", "1 to 1000"]),
            (
                valid.attempts_max(1001),
                ["attempts_max: 1001", "1 to 1000"],
            ),
            (valid.immediate(15), ["immediate: 15", "attempts_max, 15"]),
            (
                valid.backoff(seconds(9), seconds(3)),
                ["base: 9s", "cap, 3s"],
            ),
            (
                valid.backoff(seconds(9), seconds(86_401)),
                ["cap: 86401s", "86400s"],
            ),
            (valid.deadline(Duration::ZERO), ["deadline: 0ns", "1ms"]),
            (valid.deadline(seconds(1800)), ["deadline: 1800s", "1740s"]),
        ] {
            let mistakes = policy.mistakes();
            assert_eq!(mistakes.len(), 1, "{mistakes:?}");
            for part in parts {
                assert!(mistakes[0].contains(part), "{mistakes:?}");
            }
        }
        let all = valid
            .attempts_max(2000)
            .immediate(3000)
            .backoff(seconds(99_999), seconds(99_998))
            .deadline(seconds(5000));
        assert_eq!(all.mistakes().len(), 5, "{:?}", all.mistakes());
    }

    #[test]
    fn the_span_is_all_delays_and_all_tries() {
        let policy = RetryPolicy::default()
            .attempts_max(5)
            .immediate(1)
            .backoff(seconds(1), seconds(3))
            .deadline(seconds(10));
        // Tries 1 and 2 at once, then delays of 1, 2 and 3 seconds.
        assert_eq!(policy.span_max(), seconds(5 * 10 + 1 + 2 + 3));
        let longest = policy
            .attempts_max(u32::MAX)
            .backoff(Duration::MAX, Duration::MAX);
        assert_eq!(longest.span_max(), Duration::MAX);
        assert_eq!(policy.attempts_max(1).span_max(), seconds(10));
    }

    #[test]
    fn the_first_delay_comes_after_the_immediate_tries() {
        let policy = RetryPolicy::default()
            .immediate(2)
            .backoff(seconds(1), seconds(900));
        for _ in 0..100 {
            assert!(policy.delay(3) <= seconds(1));
            assert!(policy.delay(4) <= seconds(2));
        }
    }

    #[test]
    fn a_message_type_overrides_part_by_part() {
        let policy = RetryPolicy::default().attempts_max(7);
        assert_eq!(policy.overridden(&RetryOverride::NONE), policy);
        let parts = RetryOverride::NONE
            .base(seconds(2))
            .after_dead_letter(AfterDeadLetter::Continues);
        let overridden = policy.overridden(&parts);
        assert_eq!(overridden.attempts_max, 7);
        assert_eq!(overridden.backoff, Backoff::new(seconds(2), CAP_DEFAULT));
        assert_eq!(overridden.after_dead_letter, AfterDeadLetter::Continues);
    }
}
