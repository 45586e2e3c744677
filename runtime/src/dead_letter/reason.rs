//! Why messages are set aside: a closed list of words, the same at both ends, in the table and in
//! every tool.

use std::fmt;

/// Why a message was set aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// All tries are used up; at the last one the handler said no.
    Failed,
    /// All tries are used up; at the last one the handler panicked.
    Panicked,
    /// All tries are used up; at the last one the handler passed its deadline.
    Deadline,
    /// The handler said that no further try can help.
    Permanent,
    /// The handler asked for it.
    DeadLettered,
    /// The payload is no message of its type.
    Undecodable,
    /// Its parts are no valid envelope.
    Malformed,
    /// No process had a handler for its type within the grace.
    UnknownType,
    /// Processes died while they ran it.
    KilledProcess,
    /// The broker delivered it too often.
    DeliveryLimit,
    /// No queue took it.
    Unroutable,
    /// The broker refused it.
    Refused,
    /// It is larger than the broker, or the configuration, allows.
    TooLarge,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Self; 13] = [
        Self::Failed,
        Self::Panicked,
        Self::Deadline,
        Self::Permanent,
        Self::DeadLettered,
        Self::Undecodable,
        Self::Malformed,
        Self::UnknownType,
        Self::KilledProcess,
        Self::DeliveryLimit,
        Self::Unroutable,
        Self::Refused,
        Self::TooLarge,
    ];

    /// The word in the table.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Panicked => "panicked",
            Self::Deadline => "deadline",
            Self::Permanent => "permanent",
            Self::DeadLettered => "dead_lettered",
            Self::Undecodable => "undecodable",
            Self::Malformed => "malformed",
            Self::UnknownType => "unknown_type",
            Self::KilledProcess => "killed_process",
            Self::DeliveryLimit => "delivery_limit",
            Self::Unroutable => "unroutable",
            Self::Refused => "refused",
            Self::TooLarge => "too_large",
        }
    }

    /// The reason of a word in the table.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == word)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_stands_for_one_reason() {
        for reason in Reason::ALL {
            assert_eq!(Reason::of(reason.as_str()), Some(reason));
        }
        assert_eq!(Reason::of("bad luck"), None);
    }
}
