use std::time::Duration;

/// Exponential backoff with full jitter: before try n + 1 a random time between zero and `base` ×
/// 2^(n-1), never more than `cap`.
///
/// Saturating in every step: any number of failures is fine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    cap: Duration,
}

impl Backoff {
    /// A backoff that begins with `base` and never passes `cap`.
    #[must_use]
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap }
    }

    /// The longest delay after the first failure.
    #[must_use]
    pub const fn base(&self) -> Duration {
        self.base
    }

    /// The longest delay of all.
    #[must_use]
    pub const fn cap(&self) -> Duration {
        self.cap
    }

    /// The longest delay after this many failures in a row.
    #[must_use]
    pub fn ceiling(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1);
        let factor = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        self.base.saturating_mul(factor).min(self.cap)
    }

    /// A random delay after this many failures in a row: full jitter, see [`Backoff::delay_with`].
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        self.delay_with(failures, rand::random::<f64>())
    }

    /// The delay for a random number `0.0..1.0`.
    #[must_use]
    pub fn delay_with(&self, failures: u32, random: f64) -> Duration {
        let ceiling = self.ceiling(failures);
        let seconds = ceiling.as_secs_f64() * random.clamp(0.0, 1.0);
        Duration::try_from_secs_f64(seconds)
            .unwrap_or(ceiling)
            .min(ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_of_failures_overflows_or_passes_the_cap() {
        let (base, cap) = (Duration::from_secs(1), Duration::from_secs(3600));
        let backoff = Backoff::new(base, cap);
        for failures in [0, 1, 31, 32, 33, 63, 64, 1000, i32::MAX as u32, u32::MAX] {
            assert!(backoff.ceiling(failures) <= cap);
            assert!(backoff.ceiling(failures) >= base);
            for random in [0.0, 0.5, 0.999_999, 1.0, f64::NAN.max(0.0)] {
                assert!(backoff.delay_with(failures, random) <= cap);
            }
        }
        assert_eq!(
            Backoff::new(Duration::MAX, Duration::MAX).ceiling(u32::MAX),
            Duration::MAX
        );
    }

    #[test]
    fn the_ceiling_doubles() {
        let backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(30));
        let ceilings: Vec<u128> = (1..=4).map(|n| backoff.ceiling(n).as_millis()).collect();
        assert_eq!(ceilings, [100, 200, 400, 800]);
        assert_eq!(backoff.ceiling(20), Duration::from_secs(30));
    }
}
