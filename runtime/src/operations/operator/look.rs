use super::operator::{EVERY_STATE, PAGE_MAX};
use super::{Operator, OperatorError};
use crate::store::{
    Action, Database, DeadLetter, DeadLetterStore, LetterFilter, LetterGroup, LetterId,
    RecordStore, Revision, Successor,
};

/// Actions that are shown with a letter, at most.
const ACTIONS_SHOWN_MAX: usize = 100;

/// All that is known of a letter.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Shown {
    /// The letter, its message as the current revision has it.
    pub letter: DeadLetter,
    /// Its revisions, the message as it was set aside first.
    pub revisions: Vec<Revision>,
    /// What operators did to it, newest first, at most 100.
    pub actions: Vec<Action>,
    /// The first of those that wait behind it, in order; all are counted
    /// ([`DeadLetter::successors`]).
    pub successors: Vec<Successor>,
}

impl<D: Database> Operator<D> {
    /// The letters of a selection after a given one, in the order of their ids, at most `limit`
    /// (and [`PAGE_MAX`]). The next page begins after the last letter of this one.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn letters(
        &self,
        filter: &LetterFilter,
        after: Option<LetterId>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>, OperatorError> {
        filter.check()?;
        let limit = limit.min(PAGE_MAX);
        self.read(async |connection| self.store.letters(connection, filter, after, limit).await)
            .await
    }

    /// The letters of a selection by origin, type, kind of error and fingerprint, largest groups
    /// first, at most `limit` (and [`PAGE_MAX`]).
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn groups(
        &self,
        filter: &LetterFilter,
        limit: usize,
    ) -> Result<Vec<LetterGroup>, OperatorError> {
        filter.check()?;
        let limit = limit.min(PAGE_MAX);
        self.read(async |connection| self.store.letter_groups(connection, filter, limit).await)
            .await
    }

    /// All that is known of a letter, whatever its state, and the first `successors` of those that
    /// wait behind it (at most [`PAGE_MAX`]).
    ///
    /// # Errors
    /// When there is no such letter, or the database does not answer.
    pub async fn show(&self, letter: LetterId, successors: usize) -> Result<Shown, OperatorError> {
        let store = &self.store;
        let shown = self
            .read(async |connection| {
                let filter = LetterFilter {
                    ids: vec![letter],
                    states: EVERY_STATE.to_vec(),
                    ..LetterFilter::default()
                };
                let Some(found) = store.letters(connection, &filter, None, 1).await?.pop() else {
                    return Ok(None);
                };
                let revisions = store.revisions(connection, letter).await?;
                let actions = store
                    .actions(connection, Some(letter), ACTIONS_SHOWN_MAX)
                    .await?;
                let successors = successors.min(PAGE_MAX);
                let successors = store.successors(connection, letter, successors).await?;
                Ok(Some(Shown {
                    letter: found,
                    revisions,
                    actions,
                    successors,
                }))
            })
            .await?;
        shown.ok_or(OperatorError::NoSuchLetter(letter))
    }

    /// What operators did, newest first, at most `limit` (and [`PAGE_MAX`]); only to one letter if
    /// it is given.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn record(
        &self,
        letter: Option<LetterId>,
        limit: usize,
    ) -> Result<Vec<Action>, OperatorError> {
        let limit = limit.min(PAGE_MAX);
        self.read(async |connection| self.store.actions(connection, letter, limit).await)
            .await
    }
}
