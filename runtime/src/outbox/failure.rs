use crate::dead_letter::Reason;

/// Why a row was not dispatched: its own failure, not an outage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DispatchFailure {
    /// The broker has no queue for it.
    Unroutable(String),
    /// The broker refused it (nack).
    Refused(String),
    /// It is larger than what is allowed, or than what the broker takes.
    TooLarge(String),
    /// It is no valid message, or none that the broker can carry.
    Malformed(String),
}

impl DispatchFailure {
    /// The failure's kind.
    pub(super) fn reason(&self) -> Reason {
        match self {
            Self::Unroutable(_) => Reason::Unroutable,
            Self::Refused(_) => Reason::Refused,
            Self::TooLarge(_) => Reason::TooLarge,
            Self::Malformed(_) => Reason::Malformed,
        }
    }

    /// Whether the same again can only fail again.
    pub(super) fn is_final(&self) -> bool {
        matches!(self, Self::TooLarge(_) | Self::Malformed(_))
    }

    /// What the operator reads.
    pub(super) fn error(&self) -> String {
        match self {
            Self::Unroutable(text) | Self::Refused(text) => {
                format!("{}: {text}", self.reason().as_str())
            }
            Self::TooLarge(text) | Self::Malformed(text) => text.clone(),
        }
    }
}
