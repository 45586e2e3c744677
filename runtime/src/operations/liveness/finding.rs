use std::time::Duration;

/// What a look at one subject found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// The outside agrees; how.
    Well(String),
    /// There is nothing to hold against the outside now.
    Explained,
    /// The outside says something else; what. As long as it stays the same difference, the text
    /// does too.
    Different(String),
}

impl Finding {
    /// Of an actor at work that has taken no step for so long, if it has not.
    pub(super) fn of_work(at_work_for: Option<Duration>, patience: Duration) -> Self {
        match at_work_for {
            Some(worked) if worked > patience => Self::Different(format!(
                "it has been at work for longer than {patience:?} without an end of anything"
            )),
            _ => Self::Explained,
        }
    }
}
