//! What becomes of dead letters, and operators' versions of their messages.

use bytes::Bytes;
use posta::store::{
    DeadLetterStore, LetterChange, LetterId, LetterState, NewDeadLetter, NewRevision, Revision,
    Store,
};

pub(super) use super::given::fresh as start;
use super::given::{Place, keyed, keyless, odd_errors, odd_payloads};
use super::letters::{dead, dead_and_parked};
use crate::harness::database::TestDatabase;

use LetterChange::{Discard, Replay, Restore, Skip};

/// A letter in each state: dead, dead and parked, replaying, replayed, discarded.
async fn in_each_state<D: TestDatabase>(place: &Place<D>) -> [LetterId; 5] {
    let fence = place.own_partition("c").await;
    let envelopes: Vec<_> = (0..5).map(|n| keyed(&format!("k{n}"), b"")).collect();
    let mut letters: Vec<NewDeadLetter> = envelopes.iter().map(dead).collect();
    letters[1].parked = true;
    let ids: [LetterId; 5] = place.bury(&letters).await.try_into().unwrap();
    assert!(place.readmit_held(ids[3], &envelopes[3]).await);
    let position = place.position_of(&envelopes[3]).await;
    assert_eq!(place.release(&fence, &[position]).await, [position]);
    place.change(&ids[2..3], Replay).await;
    place.change(&ids[4..], Discard).await;
    ids
}

pub(super) async fn a_change_takes_only_letters_in_the_state_that_it_begins_with<
    D: TestDatabase,
>(
    place: &Place<D>,
) {
    let ids = in_each_state(place).await;
    let states = async || {
        let mut states = Vec::new();
        for id in ids {
            let letter = place.letter(id).await;
            states.push((letter.state, letter.parked));
        }
        states
    };
    let before = states().await;
    use LetterState::{Dead, Discarded, Replayed, Replaying};
    assert_eq!(
        before,
        [
            (Dead, false),
            (Dead, true),
            (Replaying, false),
            (Replayed, false),
            (Discarded, false)
        ]
    );
    for (change, from) in [
        (Replay, &ids[..2]),
        (Discard, &ids[..2]),
        (Restore, &ids[4..]),
        (Skip, &ids[1..2]),
    ] {
        let mut session = place.begin().await;
        let mut changed = place
            .store
            .change_letters(&mut session, &ids, change)
            .await
            .unwrap();
        session.rollback().await;
        changed.sort_unstable();
        assert_eq!(changed, from, "{change:?}");
    }
    assert_eq!(states().await, before);
}

pub(super) async fn changed_letters_come_once_and_others_stay<D: TestDatabase>(place: &Place<D>) {
    let letters: Vec<NewDeadLetter> = (0..3).map(|_| dead(&keyless(b""))).collect();
    let ids = place.bury(&letters).await;
    let asked = [ids[2], LetterId(i64::MAX), ids[0], ids[2]];
    assert_eq!(place.change(&asked, Replay).await, [ids[0], ids[2]]);
    assert_eq!(place.change(&asked, Replay).await, []);
    assert_eq!(place.change(&[], Replay).await, []);
    assert_eq!(place.letter(ids[1]).await.state, LetterState::Dead);
}

pub(super) async fn a_replay_is_counted_and_begins_the_attempts_anew<D: TestDatabase>(
    place: &Place<D>,
) {
    let id = place.bury(&[dead(&keyless(b""))]).await[0];
    for replays in 1..4 {
        place.change(&[id], Replay).await;
        let letter = place.letter(id).await;
        assert_eq!((letter.replays, letter.attempts), (replays, 0));
        assert_eq!(
            (letter.state, letter.ended_at),
            (LetterState::Replaying, None)
        );
        let again = NewDeadLetter {
            again: Some(id),
            ..dead(&keyless(b""))
        };
        assert_eq!(place.bury(&[again]).await, [id]);
    }
}

pub(super) async fn a_letter_that_was_discarded_can_be_restored<D: TestDatabase>(place: &Place<D>) {
    let id = place.bury(&[dead_and_parked(&keyed("k", b"1"))]).await[0];
    place.change(&[id], Discard).await;
    let discarded = place.letter(id).await;
    assert!(!discarded.parked && discarded.ended_at >= Some(discarded.dead_at));
    place.change(&[id], Restore).await;
    let restored = place.letter(id).await;
    assert_eq!(
        (restored.state, restored.parked, restored.ended_at),
        (LetterState::Dead, false, None)
    );
    assert_eq!(restored.message, discarded.message);
    assert_eq!(restored.dead_at, discarded.dead_at);
}

pub(super) async fn a_letter_that_is_skipped_stays_dead<D: TestDatabase>(place: &Place<D>) {
    let id = place.bury(&[dead_and_parked(&keyed("k", b"1"))]).await[0];
    assert_eq!(place.change(&[id], Skip).await, [id]);
    let letter = place.letter(id).await;
    assert_eq!((letter.state, letter.parked), (LetterState::Dead, false));
    assert_eq!(place.change(&[id], Skip).await, []);
}

pub(super) async fn locked_letters_come_by_id_without_those_that_there_are_not<D: TestDatabase>(
    place: &Place<D>,
) {
    let letters: Vec<NewDeadLetter> = (0..3).map(|_| dead(&keyless(b"p"))).collect();
    let ids = place.bury(&letters).await;
    let asked = [ids[2], LetterId(i64::MAX), ids[0], ids[2]];
    let locked = place
        .done(async |store, session| store.lock_letters(session, &asked).await)
        .await;
    let found: Vec<LetterId> = locked.iter().map(|letter| letter.id).collect();
    assert_eq!(found, [ids[0], ids[2]]);
    assert!(
        locked
            .iter()
            .all(|letter| letter.message.payload.as_ref() == b"p")
    );
    let none = place
        .done(async |store, session| store.lock_letters(session, &[]).await)
        .await;
    assert!(none.is_empty());
}

/// Two operators act upon one letter: the second sees what the first did.
pub(super) async fn a_letter_that_is_locked_is_read_by_others_when_that_has_ended<
    D: TestDatabase,
>(
    place: &Place<D>,
) {
    let id = place.bury(&[dead(&keyless(b""))]).await[0];
    let mut first = place.begin().await;
    place.store.lock_letters(&mut first, &[id]).await.unwrap();
    let other = place.another().await;
    let second = async {
        let mut session = other.begin().await.unwrap();
        let letters = other.lock_letters(&mut session, &[id]).await.unwrap();
        let changed = other
            .change_letters(&mut session, &[id], Discard)
            .await
            .unwrap();
        session.commit().await.unwrap();
        (letters[0].state, changed)
    };
    let acts = async {
        // The second has begun by then, or begins later: it waits either way.
        tokio::task::yield_now().await;
        place
            .store
            .change_letters(&mut first, &[id], Replay)
            .await
            .unwrap();
        first.commit().await.unwrap();
    };
    let ((state, changed), ()) = tokio::join!(second, acts);
    assert_eq!((state, changed), (LetterState::Replaying, vec![]));
}

pub(super) async fn a_revision_becomes_the_message_and_the_original_stays_byte_for_byte<
    D: TestDatabase,
>(
    place: &Place<D>,
) {
    let payloads = odd_payloads();
    for (original, revised) in payloads.iter().zip(payloads.iter().rev()) {
        let mut envelope = keyed("k", original);
        envelope.version = 7;
        let id = place.bury(&[dead(&envelope)]).await[0];
        let before = place.letter(id).await;
        let new = NewRevision {
            version: Some(8),
            content_type: Some("text/plain".to_owned()),
            ..revision(revised)
        };
        assert_eq!(revise(place, id, &new).await, Some(1));
        let after = place.letter(id).await;
        assert!(after.message.payload == *revised);
        assert_eq!(after.message.version, Some(8));
        assert_eq!(after.message.content_type.as_deref(), Some("text/plain"));
        assert_eq!(
            (
                &after.message.id,
                &after.message.key,
                &after.message.headers
            ),
            (
                &before.message.id,
                &before.message.key,
                &before.message.headers
            )
        );
        assert_eq!((after.revision, after.state), (1, LetterState::Dead));
        let revisions = revisions(place, id).await;
        assert_eq!(revisions.len(), 2);
        assert!(revisions[0].payload == *original && revisions[1].payload == *revised);
        assert_eq!(revisions[0].version, Some(7));
        assert_eq!(revisions[0].content_type, before.message.content_type);
    }
}

pub(super) async fn revisions_are_numbered_and_say_who_made_them_and_why<D: TestDatabase>(
    place: &Place<D>,
) {
    let id = place.bury(&[dead(&keyless(b"0"))]).await[0];
    let other = place.bury(&[dead(&keyless(b"0"))]).await[0];
    let errors = odd_errors();
    for (number, (text, _)) in errors.iter().enumerate() {
        let new = NewRevision {
            who: text.clone(),
            reason: text.clone(),
            ..revision(number.to_string().as_bytes())
        };
        assert_eq!(revise(place, id, &new).await, Some(number as u32 + 1));
    }
    assert_eq!(revise(place, other, &revision(b"")).await, Some(1));
    let found = revisions(place, id).await;
    let letter = place.letter(id).await;
    assert_eq!(
        (
            found[0].number,
            found[0].who.as_str(),
            found[0].reason.as_str()
        ),
        (0, "", "")
    );
    assert_eq!(found[0].revised_at, letter.dead_at);
    for (index, (found, (_, stored))) in found[1..].iter().zip(&errors).enumerate() {
        assert_eq!(found.number, index as u32 + 1);
        assert_eq!((&found.who, &found.reason), (stored, stored));
        assert_eq!((found.version, &found.content_type), (None, &None));
        assert!(found.revised_at >= letter.dead_at);
    }
    assert_eq!(letter.message.payload, (errors.len() - 1).to_string());
    assert!(revisions(place, LetterId(i64::MAX)).await.is_empty());
}

pub(super) async fn only_a_dead_letter_is_revised<D: TestDatabase>(place: &Place<D>) {
    let ids = in_each_state(place).await;
    for id in ids[2..].iter().chain([&LetterId(i64::MAX)]) {
        assert_eq!(revise(place, *id, &revision(b"no")).await, None);
    }
    for id in &ids[..2] {
        assert_eq!(revise(place, *id, &revision(b"yes")).await, Some(1));
    }
    assert_eq!(place.rows("dead_letter_revision").await, 2);
}

/// The time of the message as it was set aside is that of its first death.
pub(super) async fn revisions_survive_another_death<D: TestDatabase>(place: &Place<D>) {
    let envelope = keyless(b"original");
    let id = place.bury(&[dead(&envelope)]).await[0];
    let first = place.letter(id).await.dead_at;
    revise(place, id, &revision(b"revised")).await;
    for _ in 0..3 {
        place.change(&[id], Replay).await;
        let again = NewDeadLetter {
            again: Some(id),
            ..dead(&envelope)
        };
        place.bury(&[again]).await;
    }
    let found = revisions(place, id).await;
    let payloads: Vec<&[u8]> = found.iter().map(|found| found.payload.as_ref()).collect();
    assert_eq!(payloads, [&b"original"[..], b"revised"]);
    assert_eq!(found[0].revised_at, first);
    assert_eq!(revise(place, id, &revision(b"again")).await, Some(2));
    assert_eq!(place.letter(id).await.message.payload.as_ref(), b"again");
}

fn revision(payload: &[u8]) -> NewRevision {
    NewRevision {
        payload: Bytes::copy_from_slice(payload),
        version: None,
        content_type: None,
        who: "ada".to_owned(),
        reason: "a typo".to_owned(),
    }
}

async fn revise<D: TestDatabase>(
    place: &Place<D>,
    letter: LetterId,
    revision: &NewRevision,
) -> Option<u32> {
    place
        .done(async |store, session| store.revise(session, letter, revision).await)
        .await
}

async fn revisions<D: TestDatabase>(place: &Place<D>, letter: LetterId) -> Vec<Revision> {
    place
        .done(async |store, session| store.revisions(session, letter).await)
        .await
}
