//! Operators at the same letter.

use bytes::Bytes;
use futures_util::future::join;
use posta::store::{
    DeadLetterStore, LetterChange, LetterFilter, LetterState, NewRevision, Origin, Store,
};

use super::{blocked, dead, keyed, parked};
use crate::harness::postgres::{migrated, run};

/// Who waits for a letter sees what the other has made of it, its message too.
#[tokio::test]
async fn a_letter_is_read_as_it_is_when_its_lock_is_had() {
    let (guard, store) = migrated().await;
    let letter = parked(&store, &keyed("k", "original")).await;
    let mut first = store.begin().await.unwrap();
    let locked = store.lock_letters(&mut first, &[letter]).await.unwrap();
    assert_eq!(locked[0].state, LetterState::Dead);
    let revision = NewRevision {
        payload: Bytes::from_static(b"edited"),
        version: Some(7),
        content_type: Some("text/plain".to_owned()),
        who: "ann".to_owned(),
        reason: "a typing error".to_owned(),
    };
    let number = store.revise(&mut first, letter, &revision).await.unwrap();
    assert_eq!(number, Some(1));
    let replayed = store
        .change_letters(&mut first, &[letter], LetterChange::Replay)
        .await
        .unwrap();
    assert_eq!(replayed, [letter]);

    let second = async {
        let mut session = store.begin().await.unwrap();
        let locked = store.lock_letters(&mut session, &[letter]).await.unwrap();
        assert_eq!(locked[0].state, LetterState::Replaying);
        assert_eq!((locked[0].replays, locked[0].revision), (1, 1));
        assert_eq!(locked[0].message.payload, "edited");
        assert_eq!(locked[0].message.version, Some(7));
        for change in [
            LetterChange::Replay,
            LetterChange::Discard,
            LetterChange::Skip,
        ] {
            let changed = store.change_letters(&mut session, &[letter], change).await;
            assert_eq!(changed.unwrap(), [], "{change:?}");
        }
        let revised = store.revise(&mut session, letter, &revision).await.unwrap();
        assert_eq!(revised, None, "its message is on its way");
        session.commit().await.unwrap();
    };
    let commit = async {
        blocked(&mut guard.connection().await, 1).await;
        first.commit().await.unwrap();
    };
    join(second, commit).await;

    let mut session = store.begin().await.unwrap();
    let revisions = store.revisions(&mut session, letter).await.unwrap();
    session.rollback().await;
    let payloads: Vec<_> = revisions.iter().map(|r| r.payload.clone()).collect();
    assert_eq!(payloads, ["original", "edited"]);
}

/// What many operators lock in whatever order, they lock in one.
#[tokio::test]
async fn letters_are_locked_in_one_order() {
    let (_guard, store) = migrated().await;
    let mut session = store.begin().await.unwrap();
    let letters: Vec<_> = (0..50)
        .map(|n| dead(Origin::Dispatch, &keyed(&format!("k{n}"), ""), false))
        .collect();
    let letters = store.bury(&mut session, &letters).await.unwrap();
    session.commit().await.unwrap();
    assert!(letters.is_sorted(), "in the order given");
    let mut backwards = letters.clone();
    backwards.reverse();
    let turn = async |order: &[posta::store::LetterId]| {
        for change in [LetterChange::Discard, LetterChange::Restore].repeat(20) {
            let mut session = store.begin().await.unwrap();
            let locked = store.lock_letters(&mut session, order).await.unwrap();
            assert_eq!(locked.len(), 50);
            store
                .change_letters(&mut session, order, change)
                .await
                .unwrap();
            session.commit().await.unwrap();
        }
    };
    join(turn(&letters), turn(&backwards)).await;
}

/// A foreign publisher's id and key can be of any length.
#[tokio::test]
async fn a_part_that_is_too_long_for_a_key_of_an_index_is_kept_and_found() {
    let (_guard, store) = migrated().await;
    let mut letter = dead(Origin::Dispatch, &keyed("k", ""), false);
    // No two alike, so that they cannot be compressed.
    let long: String = (0..5000).map(|n| format!("{n:x}")).collect();
    letter.message.key = Some(format!("{long}\0"));
    letter.message.id = Some(long.clone());
    let mut session = store.begin().await.unwrap();
    store.bury(&mut session, &[letter]).await.unwrap();
    for filter in [
        LetterFilter {
            key: Some(format!("{long}\0")),
            ..LetterFilter::default()
        },
        LetterFilter {
            message_id: Some(long),
            ..LetterFilter::default()
        },
    ] {
        let found = store.letters(&mut session, &filter, None, 10).await;
        assert_eq!(found.unwrap().len(), 1);
    }
    session.rollback().await;
}

/// What a version before this one has set aside is a letter like any other.
#[tokio::test]
async fn a_letter_without_the_newer_parts_is_dead() {
    let (guard, store) = migrated().await;
    let name = store.tables().name();
    run(
        &guard.url(),
        &format!(
            "INSERT INTO {name}.dead_letter (consumer, headers, payload, attempts, reason, error)
             VALUES ('c', '{{}}', 'bytes', 2, 'undecodable', 'what it said')"
        ),
    )
    .await;
    let mut session = store.begin().await.unwrap();
    let filter = LetterFilter::default();
    let letters = store
        .letters(&mut session, &filter, None, 10)
        .await
        .unwrap();
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert_eq!(letter.state, LetterState::Dead);
    assert_eq!((letter.first_failed_at, letter.slot), (None, None));
    let revisions = store.revisions(&mut session, letter.id).await.unwrap();
    assert_eq!(revisions[0].revised_at, letter.dead_at);
    let groups = store
        .letter_groups(&mut session, &filter, 10)
        .await
        .unwrap();
    assert_eq!((groups[0].letters, groups[0].fingerprint.as_str()), (1, ""));
    session.rollback().await;
}
