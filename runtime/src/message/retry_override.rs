use std::time::Duration;

/// What becomes of a message's key once the message is a dead letter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AfterDeadLetter {
    /// The key's later messages wait until an operator has replayed, skipped or discarded it: order
    /// is what a key promises.
    #[default]
    Parked,
    /// The key goes on without it.
    Continues,
}

/// The parts of a retry policy that a message type sets for itself, wherever it is handled: what
/// `#[message(retry(…), deadline = …, after_dead_letter = …)]` says. Its consumer's policy has the
/// rest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryOverride {
    pub(crate) immediate: Option<u32>,
    pub(crate) attempts_max: Option<u32>,
    pub(crate) base: Option<Duration>,
    pub(crate) cap: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) after_dead_letter: Option<AfterDeadLetter>,
}

impl RetryOverride {
    /// No part: the consumer's policy as it is.
    pub const NONE: Self = Self {
        immediate: None,
        attempts_max: None,
        base: None,
        cap: None,
        deadline: None,
        after_dead_letter: None,
    };

    /// Further tries at once after the first.
    #[must_use]
    pub const fn immediate(mut self, tries: u32) -> Self {
        self.immediate = Some(tries);
        self
    }

    /// Tries in all.
    #[must_use]
    pub const fn attempts_max(mut self, tries: u32) -> Self {
        self.attempts_max = Some(tries);
        self
    }

    /// The longest delay before the first delayed try.
    #[must_use]
    pub const fn base(mut self, base: Duration) -> Self {
        self.base = Some(base);
        self
    }

    /// The longest delay of all.
    #[must_use]
    pub const fn cap(mut self, cap: Duration) -> Self {
        self.cap = Some(cap);
        self
    }

    /// How long the handler may take.
    #[must_use]
    pub const fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// What becomes of the key of a dead letter.
    #[must_use]
    pub const fn after_dead_letter(mut self, then: AfterDeadLetter) -> Self {
        self.after_dead_letter = Some(then);
        self
    }
}
