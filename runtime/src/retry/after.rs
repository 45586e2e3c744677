/// What becomes of an ordering key when one of its messages has become a dead letter. Without a
/// key there is nothing to wait, and it makes no difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AfterDeadLetter {
    /// Its successors wait, in order, until an operator has replayed, skipped or discarded the dead
    /// letter: order is what a key promises.
    #[default]
    Parked,
    /// Its successors go on without it.
    Continues,
}
