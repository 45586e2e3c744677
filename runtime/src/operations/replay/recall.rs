use crate::store::{ConnectionOf, DeadLetter, LetterChange, Origin, Recall, Store, StoreError};

/// Takes a letter that is on its way back: dead again, in the place that it kept, and left out of
/// the run that sent it. The letter is locked and replaying. One that a running process is at stays
/// as it is; one whose row is gone is dead again, and its key goes on.
pub(crate) async fn recall<S: Store>(
    store: &S,
    connection: &mut ConnectionOf<S>,
    letter: &DeadLetter,
) -> Result<Recall, StoreError> {
    let found = take_row(store, connection, letter).await?;
    if found != Recall::Running {
        end_recall(store, connection, letter, found).await?;
    }
    Ok(found)
}

/// The first half: takes its row back. Waits for nobody.
pub(crate) async fn take_row<S: Store>(
    store: &S,
    connection: &mut ConnectionOf<S>,
    letter: &DeadLetter,
) -> Result<Recall, StoreError> {
    match &letter.origin {
        Origin::Dispatch => store.recall(connection, letter.id, letter.parked).await,
        Origin::Consumer(consumer) => {
            store
                .recall_held(connection, consumer, letter.id, letter.parked)
                .await
        }
    }
}

/// The second half: makes the letter, which is locked and replaying, dead again.
pub(crate) async fn end_recall<S: Store>(
    store: &S,
    connection: &mut ConnectionOf<S>,
    letter: &DeadLetter,
    found: Recall,
) -> Result<(), StoreError> {
    change(store, connection, letter, LetterChange::Recall).await?;
    if found == Recall::Gone && letter.parked {
        // The place went with the row.
        change(store, connection, letter, LetterChange::Skip).await?;
    }
    store.leave_recalled(connection, letter.id).await
}

async fn change<S: Store>(
    store: &S,
    connection: &mut ConnectionOf<S>,
    letter: &DeadLetter,
    change: LetterChange,
) -> Result<(), StoreError> {
    let changed = store
        .change_letters(connection, &[letter.id], change)
        .await?;
    assert_eq!(
        changed,
        [letter.id],
        "a letter that is locked stays in its state"
    );
    Ok(())
}
