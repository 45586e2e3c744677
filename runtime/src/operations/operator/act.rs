use super::operator::{Deed, EVERY_STATE, IDS_MAX, check_reason};
use super::{Operator, OperatorError};
use crate::operations::replay::{Readmission, end_recall, readmit, take_row};
use crate::store::{
    Database, DeadLetter, DeadLetterStore, LetterChange, LetterFilter, LetterId, LetterState,
    Origin, OutboxStore, Recall, RetryStore,
};

impl<D: Database> Operator<D> {
    /// Puts a dead letter's message, as its current revision has it, back on its way: with its id,
    /// no attempts, in the place that it kept in its key's order, or at the end if it kept none. It
    /// counts as a replay; the successors of a parked key follow when it gets through. A message
    /// that never had an id gets one.
    ///
    /// # Errors
    /// When the letter is not `Dead` (somebody may have been faster), or its message is still no
    /// valid one: the letter stays as it was.
    pub async fn replay(&self, letter: LetterId, reason: &str) -> Result<(), OperatorError> {
        check_reason(reason)?;
        self.transact(async |connection| {
            let found = self.locked(connection, letter).await?;
            expect_dead(&found)?;
            let admitted = match readmit(&self.store, connection, &found).await? {
                Readmission::Admitted(admitted) => admitted,
                Readmission::Refused(reason) => {
                    return Err(OperatorError::Refused { letter, reason });
                }
            };
            self.change(connection, &[letter], LetterChange::Replay)
                .await?;
            let deed = Deed {
                action: "replay",
                reason,
                letter: Some(letter),
                run: None,
                details: admitted.in_words(),
            };
            self.write_down(connection, deed).await
        })
        .await?;
        self.nudge().await;
        Ok(())
    }

    /// Lets the keys of parked letters go on without them: their successors are released in order.
    /// The letters stay `Dead`, and can be replayed later, out of their key's order. All of them or
    /// none, at most [`IDS_MAX`].
    ///
    /// # Errors
    /// When one of them is not there, not `Dead`, or not parked.
    pub async fn skip(&self, letters: &[LetterId], reason: &str) -> Result<(), OperatorError> {
        self.end("skip", LetterChange::Skip, letters, reason).await
    }

    /// Drops dead letters; those that are parked let their keys go on. Until their retention ends
    /// they can be restored. All of them or none, at most [`IDS_MAX`].
    ///
    /// # Errors
    /// When one of them is not there or not `Dead`.
    pub async fn discard(&self, letters: &[LetterId], reason: &str) -> Result<(), OperatorError> {
        self.end("discard", LetterChange::Discard, letters, reason)
            .await
    }

    /// Makes discarded letters dead again. They do not take their place in their key's order back:
    /// the key went on. All of them or none, at most [`IDS_MAX`].
    ///
    /// # Errors
    /// When one of them is not there or not `Discarded`.
    pub async fn restore(&self, letters: &[LetterId], reason: &str) -> Result<(), OperatorError> {
        self.end("restore", LetterChange::Restore, letters, reason)
            .await
    }

    /// Takes letters that are on their way back, when nothing comes of it: the consumer runs nowhere
    /// any more, or the row was deleted by hand. They are dead again, in the places that they kept,
    /// so that their successors go on waiting; one whose row is gone has no place left, and its key
    /// goes on. A run that sent them leaves them out. All of them or none, at most [`IDS_MAX`].
    ///
    /// # Errors
    /// When one of them is not there or not `Replaying`, or a running process is at it
    /// ([`OperatorError::AtIt`]): it has claimed the message, or may be sending it to the broker.
    pub async fn recall(&self, letters: &[LetterId], reason: &str) -> Result<(), OperatorError> {
        check_reason(reason)?;
        let letters = named(letters)?;
        let store = &self.store;
        self.transact(async |connection| {
            // Rows before letters, as who handles them has it: a handler's transaction has the letter
            // too, from its beginning to its end, and is not waited for.
            let filter = LetterFilter {
                ids: letters.clone(),
                states: EVERY_STATE.to_vec(),
                ..LetterFilter::default()
            };
            let seen = store.letters(connection, &filter, None, IDS_MAX).await?;
            check_all(&letters, &seen, LetterChange::Recall)?;
            let mut taken = Vec::with_capacity(seen.len());
            for letter in &seen {
                match take_row(store, connection, letter).await? {
                    Recall::Running => return Err(OperatorError::AtIt(letter.id)),
                    found => taken.push(found),
                }
            }
            let locked = store.lock_letters(connection, &letters).await?;
            check_all(&letters, &locked, LetterChange::Recall)?;
            for (letter, mut found) in locked.iter().zip(taken) {
                if found == Recall::Gone {
                    // It may have died and been replayed again, before it was locked.
                    found = take_row(store, connection, letter).await?;
                }
                if found == Recall::Running {
                    return Err(OperatorError::AtIt(letter.id));
                }
                end_recall(store, connection, letter, found).await?;
                let details = match (found, letter.parked) {
                    (Recall::Gone, true) => "its row was gone; its key goes on",
                    (Recall::Gone, false) => "its row was gone",
                    (_, true) => "its key waits for it again",
                    (_, false) => "",
                };
                let deed = Deed {
                    action: "recall",
                    reason,
                    letter: Some(letter.id),
                    run: None,
                    details: details.to_owned(),
                };
                self.write_down(connection, deed).await?;
            }
            Ok(())
        })
        .await?;
        // What waited behind one without a place is the next of its key.
        self.nudge().await;
        Ok(())
    }

    /// What skip, discard and restore have in common.
    async fn end(
        &self,
        action: &'static str,
        change: LetterChange,
        letters: &[LetterId],
        reason: &str,
    ) -> Result<(), OperatorError> {
        check_reason(reason)?;
        let letters = named(letters)?;
        let store = &self.store;
        let unparked = self
            .transact(async |connection| {
                let found = store.lock_letters(connection, &letters).await?;
                check_all(&letters, &found, change)?;
                self.change(connection, &letters, change).await?;
                let mut unparked = false;
                for letter in &found {
                    let mut details = String::new();
                    if letter.parked {
                        let went = match &letter.origin {
                            Origin::Dispatch => store.unpark(connection, letter.id).await?,
                            Origin::Consumer(name) => {
                                store.unpark_held(connection, name, letter.id).await?
                            }
                        };
                        unparked |= went;
                        let key = letter.message.key.as_deref().unwrap_or_default();
                        details = format!("its key {key:?} goes on");
                    }
                    let deed = Deed {
                        action,
                        reason,
                        letter: Some(letter.id),
                        run: None,
                        details,
                    };
                    self.write_down(connection, deed).await?;
                }
                Ok(unparked)
            })
            .await?;
        if unparked {
            self.nudge().await;
        }
        Ok(())
    }

    /// Reads a letter and keeps others from it until the transaction ends.
    pub(super) async fn locked(
        &self,
        connection: &mut D::Connection,
        letter: LetterId,
    ) -> Result<DeadLetter, OperatorError> {
        let mut found = self.store.lock_letters(connection, &[letter]).await?;
        found.pop().ok_or(OperatorError::NoSuchLetter(letter))
    }

    /// Changes letters that are locked and were checked.
    async fn change(
        &self,
        connection: &mut D::Connection,
        letters: &[LetterId],
        change: LetterChange,
    ) -> Result<(), OperatorError> {
        let changed = self
            .store
            .change_letters(connection, letters, change)
            .await?;
        assert_eq!(
            changed.len(),
            letters.len(),
            "letters that are locked stay in their state"
        );
        Ok(())
    }
}

/// Letters that an action names: each once, in order, not too many.
fn named(letters: &[LetterId]) -> Result<Vec<LetterId>, OperatorError> {
    let mut letters = letters.to_vec();
    letters.sort_unstable();
    letters.dedup();
    if letters.is_empty() || letters.len() > IDS_MAX {
        let problem = format!("{} of them; it must be 1 to {IDS_MAX}", letters.len());
        return Err(OperatorError::argument("letters", problem));
    }
    Ok(letters)
}

/// Whether every letter is there and can be changed so.
fn check_all(
    letters: &[LetterId],
    found: &[DeadLetter],
    change: LetterChange,
) -> Result<(), OperatorError> {
    for &letter in letters {
        let found = found.iter().find(|found| found.id == letter);
        let found = found.ok_or(OperatorError::NoSuchLetter(letter))?;
        match change {
            LetterChange::Replay | LetterChange::Discard => expect_dead(found)?,
            LetterChange::Restore if found.state != LetterState::Discarded => {
                return Err(state(found, "discarded"));
            }
            LetterChange::Skip if found.state != LetterState::Dead || !found.parked => {
                return Err(state(found, "dead and parked"));
            }
            LetterChange::Recall if found.state != LetterState::Replaying => {
                return Err(state(found, "replaying"));
            }
            LetterChange::Restore | LetterChange::Skip | LetterChange::Recall => {}
        }
    }
    Ok(())
}

pub(super) fn expect_dead(letter: &DeadLetter) -> Result<(), OperatorError> {
    match letter.state {
        LetterState::Dead => Ok(()),
        _ => Err(state(letter, "dead")),
    }
}

fn state(letter: &DeadLetter, needed: &'static str) -> OperatorError {
    OperatorError::LetterState {
        letter: letter.id,
        state: letter.state,
        needed,
    }
}
