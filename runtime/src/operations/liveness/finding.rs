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
