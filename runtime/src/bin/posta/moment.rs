use std::str::FromStr;
use std::time::Duration;

use time::format_description::BorrowedFormatItem;
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime, PrimitiveDateTime, UtcOffset};

const MINUTES: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]Z");
const SECONDS: &[BorrowedFormatItem<'_>] =
    format_description!("[year]-[month]-[day] [hour]:[minute]:[second]Z");

/// A moment as it is given on the command line: a time, or so long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    At(OffsetDateTime),
    Ago(Duration),
}

impl Moment {
    /// The time that is meant, seen from the database's clock; the beginning of the calendar for
    /// one longer ago.
    pub(crate) fn seen_from(self, now: OffsetDateTime) -> OffsetDateTime {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => time::Duration::try_from(ago)
                .ok()
                .and_then(|ago| now.checked_sub(ago))
                .unwrap_or(PrimitiveDateTime::MIN.assume_utc()),
        }
    }
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const DAY: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]");
        const MINUTE: &[BorrowedFormatItem<'_>] =
            format_description!("[year]-[month]-[day] [hour]:[minute]");
        const SECOND: &[BorrowedFormatItem<'_>] =
            format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
        if let Ok(ago) = parse_duration(text) {
            return Ok(Self::Ago(ago));
        }
        if let Ok(at) = OffsetDateTime::parse(text, &Rfc3339) {
            return Ok(Self::At(at));
        }
        let plain = text.trim_end_matches('Z').replacen('T', " ", 1);
        for format in [MINUTE, SECOND] {
            if let Ok(at) = PrimitiveDateTime::parse(&plain, format) {
                return Ok(Self::At(at.assume_utc()));
            }
        }
        match Date::parse(&plain, DAY) {
            Ok(day) => Ok(Self::At(day.midnight().assume_utc())),
            Err(_) => Err(
                "give a time in UTC (2026-01-31, 2026-01-31 09:30, RFC 3339) or how long ago \
                 (90s, 30m, 12h, 7d)"
                    .to_owned(),
            ),
        }
    }
}

/// A length of time: `90s`, `30m`, `12h`, `7d`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "give a number and a unit: 90s, 30m, 12h, 7d".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let number: u32 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

/// To the minute, in UTC: for tables.
pub(crate) fn minutes(at: OffsetDateTime) -> String {
    format(at, MINUTES)
}

/// To the second, in UTC.
pub(crate) fn seconds(at: OffsetDateTime) -> String {
    format(at, SECONDS)
}

/// As RFC 3339 has it, in UTC: for programs.
pub(crate) fn rfc3339(at: OffsetDateTime) -> String {
    at.checked_to_offset(UtcOffset::UTC)
        .and_then(|utc| utc.format(&Rfc3339).ok())
        .unwrap_or_else(|| at.to_string())
}

fn format(at: OffsetDateTime, format: &[BorrowedFormatItem<'_>]) -> String {
    at.checked_to_offset(UtcOffset::UTC)
        .and_then(|utc| utc.format(format).ok())
        .unwrap_or_else(|| at.to_string())
}

/// A length of time for people: its two largest units.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m {}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h {minutes}m"),
        (days, hours, _) => format!("{days}d {hours}h"),
    }
}

/// How long ago something was, for people: in its largest unit.
pub(crate) fn ago(duration: Duration) -> String {
    const UNITS: [(u64, &str); 4] = [
        (7 * 86_400, "week"),
        (86_400, "day"),
        (3_600, "hour"),
        (60, "minute"),
    ];
    let seconds = duration.as_secs();
    for (length, unit) in UNITS {
        match seconds / length {
            0 => {}
            1 => return format!("1 {unit} ago"),
            count => return format!("{count} {unit}s ago"),
        }
    }
    "just now".to_owned()
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_moment_is_a_time_in_utc_or_so_long_ago() {
        for (text, moment) in [
            ("2026-01-31", Moment::At(datetime!(2026-01-31 00:00 UTC))),
            (
                "2026-01-31 09:30",
                Moment::At(datetime!(2026-01-31 09:30 UTC)),
            ),
            (
                "2026-01-31T09:30:15Z",
                Moment::At(datetime!(2026-01-31 09:30:15 UTC)),
            ),
            (
                "2026-01-31 09:30:15Z",
                Moment::At(datetime!(2026-01-31 09:30:15 UTC)),
            ),
            (
                "2026-01-31T09:30:15+02:00",
                Moment::At(datetime!(2026-01-31 07:30:15 UTC)),
            ),
            ("90s", Moment::Ago(Duration::from_secs(90))),
            ("7d", Moment::Ago(Duration::from_secs(604_800))),
        ] {
            assert_eq!(text.parse(), Ok(moment), "{text}");
        }
        for wrong in ["", "s", "yesterday", "-1h", "2026-13-01", "5", "1é"] {
            assert!(wrong.parse::<Moment>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn longer_ago_than_the_calendar_is_its_beginning() {
        let now = datetime!(2026-11-30 0:00 UTC);
        let day = |text: &str| text.parse::<Moment>().unwrap().seen_from(now);
        assert_eq!(day("1d"), datetime!(2026-11-29 0:00 UTC));
        assert_eq!(day("4294967295d"), datetime!(-9999-01-01 0:00 UTC));
        assert!(rfc3339(datetime!(9999-12-31 23:00 -2:00)).starts_with("9999-12-31"));
    }

    #[test]
    fn what_was_long_ago_is_told_in_its_largest_unit() {
        for (seconds, text) in [
            (0, "just now"),
            (59, "just now"),
            (60, "1 minute ago"),
            (7_199, "1 hour ago"),
            (7_200, "2 hours ago"),
            (3 * 86_400, "3 days ago"),
            (21 * 86_400, "3 weeks ago"),
        ] {
            assert_eq!(ago(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_span_has_two_units() {
        for (seconds, text) in [
            (0, "0s"),
            (61, "1m 1s"),
            (3_660, "1h 1m"),
            (90_000, "1d 1h"),
        ] {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }
}
