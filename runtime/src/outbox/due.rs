use std::time::Duration;

use time::{OffsetDateTime, UtcOffset};

use super::error::DueError;
use crate::store::Due;

/// Longest delay of a scheduled message: ten years, leap days among them. What is longer is a
/// mistake in a unit.
pub const DELAY_MAX: Duration = Duration::from_secs(10 * 365 * DAY + 3 * DAY);
/// Last year in which a scheduled message may be due: every database can tell its times, with
/// microseconds.
pub const DUE_YEAR_MAX: i32 = 9999;

const DAY: u64 = 24 * 3600;

/// A due time within the limits that every database keeps. One before 1970 counts as 1970: it has
/// passed by any clock. The process's own clock is not asked.
pub(crate) fn checked(due: Due) -> Result<Due, DueError> {
    match due {
        Due::After(delay) if delay > DELAY_MAX => Err(DueError::Delay {
            delay,
            delay_max: DELAY_MAX,
        }),
        Due::At(at) => {
            let at = at.max(OffsetDateTime::UNIX_EPOCH);
            // There is none that late in UTC: it is the last evening of the calendar, west of it.
            let utc = at.checked_to_offset(UtcOffset::UTC);
            let year = utc.map_or(DUE_YEAR_MAX + 1, OffsetDateTime::year);
            match year > DUE_YEAR_MAX {
                true => Err(DueError::Year {
                    year,
                    year_max: DUE_YEAR_MAX,
                }),
                false => Ok(Due::At(at)),
            }
        }
        Due::After(_) => Ok(due),
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_delay_over_ten_years_is_refused_and_the_longest_is_not() {
        assert_eq!(
            checked(Due::After(DELAY_MAX)).unwrap(),
            Due::After(DELAY_MAX)
        );
        let over = DELAY_MAX + Duration::from_nanos(1);
        let error = checked(Due::After(over)).unwrap_err().to_string();
        let text = "its delay is 315619200.000000001s, more than the 315619200s allowed";
        assert_eq!(error, text);
        assert!(checked(Due::After(Duration::MAX)).is_err());
    }

    #[test]
    fn a_time_long_ago_is_one_that_every_database_can_tell() {
        let at = |at| checked(Due::At(at)).unwrap();
        let epoch = Due::At(OffsetDateTime::UNIX_EPOCH);
        assert_eq!(at(datetime!(-9999-01-01 0:00 UTC)), epoch);
        assert_eq!(at(datetime!(1969-12-31 23:59:59.999 UTC)), epoch);
        assert_eq!(at(datetime!(-9999-01-01 0:00 +23:00)), epoch);
        let late = datetime!(9999-12-31 23:59:59 UTC);
        assert_eq!(at(late), Due::At(late));
    }

    #[test]
    fn a_time_behind_the_calendars_end_in_utc_is_refused() {
        let error = checked(Due::At(datetime!(9999-12-31 23:00 -2:00))).unwrap_err();
        assert_eq!(
            error.to_string(),
            "it is to be due in the year 10000, after the year 9999"
        );
        assert!(checked(Due::At(datetime!(9999-12-31 23:00 +2:00))).is_ok());
    }
}
