use crate::store::{ConnectionOf, DeadLetter, LetterChange, Origin, Recall, Store, StoreError};

/// Takes a letter that is on its way back: dead again, in the place that it kept, and left out of
/// the run that sent it. The letter is locked and replaying. One that a running process is at stays
/// as it is; one whose row is gone is dead again, and its key goes on.
pub(crate) async fn recall<S: Store>(
    store: &S,
    connection: &mut ConnectionOf<S>,
    letter: &DeadLetter,
) -> Result<Recall, StoreError> {
    let found = match &letter.origin {
        Origin::Dispatch => store.recall(connection, letter.id, letter.parked).await?,
        Origin::Consumer(consumer) => {
            store
                .recall_held(connection, consumer, letter.id, letter.parked)
                .await?
        }
    };
    if found == Recall::Running {
        return Ok(found);
    }
    change(store, connection, letter, LetterChange::Recall).await?;
    if found == Recall::Gone && letter.parked {
        // The place went with the row.
        change(store, connection, letter, LetterChange::Skip).await?;
    }
    store.leave_recalled(connection, letter.id).await?;
    Ok(found)
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
