use std::time::Duration;

/// Longest duration that is sent to the database: a hundred years, so that no sum with a point in
/// time overflows there.
const MAX: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// A duration as statements take it, in microseconds.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.min(MAX).as_micros()).unwrap_or(i64::MAX)
}

/// A duration as statements return it, in microseconds; what lies in the past is zero.
pub(super) fn duration(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_saturate() {
        assert_eq!(micros(Duration::MAX), micros(MAX));
        assert_eq!(duration(-1), Duration::ZERO);
        assert_eq!(
            duration(micros(Duration::from_millis(7))),
            Duration::from_millis(7)
        );
    }
}
