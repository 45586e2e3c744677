use std::fmt::Write as _;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::OperatorError;
use super::operator::IDS_MAX;
use crate::store::{LetterFilter, LetterState, Origin};

/// Ids that the words of a selection name, at most.
const IDS_NAMED_MAX: usize = 20;

impl LetterFilter {
    /// The selection in words, for whoever looks at it later: the record, a replay run, a dry run.
    /// At most about 4 KiB, whatever the filter holds.
    #[must_use]
    pub fn in_words(&self) -> String {
        let mut parts = Vec::new();
        if !self.ids.is_empty() {
            let named: Vec<String> = self
                .ids
                .iter()
                .take(IDS_NAMED_MAX)
                .map(ToString::to_string)
                .collect();
            let mut part = format!("id {}", named.join(", "));
            if self.ids.len() > IDS_NAMED_MAX {
                let _ = write!(part, " and {} more", self.ids.len() - IDS_NAMED_MAX);
            }
            parts.push(part);
        }
        match &self.origin {
            Some(Origin::Dispatch) => parts.push("of dispatch".to_owned()),
            Some(Origin::Consumer(name)) => parts.push(format!("of consumer {name}")),
            None => {}
        }
        let texts = [
            ("type", &self.message_type),
            ("key", &self.key),
            ("message id", &self.message_id),
            ("kind", &self.reason),
            ("fingerprint", &self.fingerprint),
            ("error with", &self.error_contains),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                parts.push(format!("{name} {:?}", cut(text)));
            }
        }
        if let Some(from) = self.dead_from {
            parts.push(format!("dead from {}", utc(from)));
        }
        if let Some(before) = self.dead_before {
            parts.push(format!("dead before {}", utc(before)));
        }
        match self.parked {
            Some(true) => parts.push("parked".to_owned()),
            Some(false) => parts.push("not parked".to_owned()),
            None => {}
        }
        if !self.states.is_empty() && self.states != [LetterState::Dead] {
            let states: Vec<&str> = self.states.iter().map(|state| state.as_str()).collect();
            parts.push(states.join(" or "));
        }
        if parts.is_empty() {
            "all dead letters".to_owned()
        } else {
            parts.join(", ")
        }
    }

    /// Checks what a statement cannot take.
    pub(super) fn check(&self) -> Result<(), OperatorError> {
        if self.ids.len() > IDS_MAX {
            return Err(OperatorError::argument(
                "ids",
                format!("{} are more than the {IDS_MAX} allowed", self.ids.len()),
            ));
        }
        Ok(())
    }
}

/// A text of at most 400 bytes, cut between characters.
fn cut(text: &str) -> &str {
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = end.take_while(|end| *end <= 400).last().unwrap_or(0);
    &text[..end]
}

/// A time in UTC, as RFC 3339 has it.
pub(super) fn utc(at: OffsetDateTime) -> String {
    // At the ends of the calendar there is none in UTC, or RFC 3339 has no words for it.
    at.checked_to_offset(time::UtcOffset::UTC)
        .and_then(|utc| utc.format(&Rfc3339).ok())
        .unwrap_or_else(|| at.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::LetterId;

    #[test]
    fn a_selection_can_be_read() {
        assert_eq!(LetterFilter::default().in_words(), "all dead letters");
        let filter = LetterFilter {
            origin: Some(Origin::Consumer("billing".to_owned())),
            message_type: Some("order.placed".to_owned()),
            error_contains: Some("time\"out".to_owned()),
            dead_from: Some(OffsetDateTime::UNIX_EPOCH),
            parked: Some(true),
            ..LetterFilter::default()
        };
        assert_eq!(
            filter.in_words(),
            "of consumer billing, type \"order.placed\", error with \"time\\\"out\", \
             dead from 1970-01-01T00:00:00Z, parked"
        );
    }

    #[test]
    fn times_at_the_ends_of_the_calendar_have_words() {
        let filter = LetterFilter {
            dead_from: Some(time::macros::datetime!(-9999-01-01 0:00 +2:00)),
            dead_before: Some(time::macros::datetime!(9999-12-31 23:59:59 -12:00)),
            ..LetterFilter::default()
        };
        assert_eq!(
            filter.in_words(),
            "dead from -9999-01-01 0:00:00.0 +02:00:00, \
             dead before 9999-12-31 23:59:59.0 -12:00:00"
        );
    }

    #[test]
    fn many_ids_and_long_texts_are_cut() {
        let filter = LetterFilter {
            ids: (0..1_000).map(LetterId).collect(),
            key: Some("й".repeat(5_000)),
            ..LetterFilter::default()
        };
        let words = filter.in_words();
        assert!(words.len() < 1_000, "{}", words.len());
        assert!(words.contains("18, 19 and 980 more"), "{words}");
    }
}
