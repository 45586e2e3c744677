//! Replays: a dead letter's message goes back into the retry table, and gets through or dies again.

use std::time::Duration;

use posta::store::{DeadLetterStore, LetterState, NewDeadLetter, Postponement, RetryStore};

pub(super) use super::given::fresh as start;
use super::given::{
    LONG, Place, failed, keyed, keyless, odd_payloads, successor, text_of, without_time,
};
use super::letters::{dead, dead_and_parked, texts};
use crate::harness::database::TestDatabase;

const NOW: Duration = Duration::ZERO;

pub(super) async fn a_readmitted_message_runs_first_and_its_successors_in_order<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let mut head = keyed("a", b"a1");
    let mut holds = vec![failed(&head, NOW)];
    holds.extend(["a2", "a3"].map(|text| successor(&keyed("a", text.as_bytes()))));
    place.hold("c", &holds).await;
    let (position, letter) = place.park(&fence, &head).await;
    // Another version of it, as an operator made it.
    head.payload = "a1, revised".into();
    head.version = 2;
    head.content_type = "text/plain".to_owned();
    assert!(place.readmit_held(letter, &head).await);
    let due = place.due_rows().await;
    assert_eq!(due.len(), 1);
    assert_eq!(due[0].envelope, head);
    assert_eq!((due[0].position, due[0].attempts), (position, 0));
    assert_eq!((due[0].letter, due[0].parked), (Some(letter), false));
    assert_eq!(due[0].failed_at, None);
    assert_eq!(due[0].unhandled_for, None);
    assert_eq!(place.next_retry().await, Some(NOW));
    for expected in ["a1, revised", "a2", "a3"] {
        let due = place.due_rows().await;
        assert_eq!(texts(&due), [expected]);
        assert_eq!(place.release(&fence, &[due[0].position]).await.len(), 1);
    }
    let letter = place.letter(letter).await;
    assert_eq!(
        (letter.state, letter.parked),
        (LetterState::Replayed, false)
    );
    assert!(letter.ended_at >= Some(letter.dead_at));
}

pub(super) async fn a_message_is_readmitted_byte_for_byte<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    for payload in odd_payloads() {
        let (kept, without) = (keyed("a", &payload), keyless(&payload));
        place.hold("c", &[failed(&kept, NOW)]).await;
        let (_, letter) = place.park(&fence, &kept).await;
        assert!(place.readmit_held(letter, &kept).await);
        let other = place.bury(&[dead(&without)]).await[0];
        assert!(place.readmit_held(other, &without).await);
        let due = place.due_rows().await;
        assert!(due.len() == 2 && due[0].envelope == kept && due[1].envelope == without);
        let positions: Vec<i64> = due.iter().map(|row| row.position).collect();
        assert_eq!(place.release(&fence, &positions).await, positions);
    }
}

pub(super) async fn a_message_without_a_place_is_readmitted_at_the_end<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let (on_hold, free, keyless) = (keyed("a", b"a3"), keyed("b", b"b1"), keyless(b"x"));
    let letters = place
        .bury(&[dead(&on_hold), dead(&free), dead(&keyless)])
        .await;
    place
        .hold(
            "c",
            &[
                failed(&keyed("a", b"a1"), LONG),
                successor(&keyed("a", b"a2")),
            ],
        )
        .await;
    // The same key at another consumer is another key.
    place.hold("other", &[failed(&keyed("b", b""), LONG)]).await;
    for (letter, message) in letters.iter().zip([&on_hold, &free, &keyless]) {
        assert!(place.readmit_held(*letter, message).await);
    }
    let due = place.due_rows().await;
    assert_eq!(texts(&due), ["b1", "x"]);
    assert_eq!(
        (due[0].letter, due[1].letter),
        (Some(letters[1]), Some(letters[2]))
    );
    assert_eq!(texts(&place.held_of("a").await), ["a1", "a2", "a3"]);
    // It comes when its key's head is through.
    let positions: Vec<i64> = place
        .held_of("a")
        .await
        .iter()
        .map(|row| row.position)
        .collect();
    place.release(&fence, &positions[..2]).await;
    let due = place.due_rows().await;
    assert_eq!(texts(&due), ["a3", "b1", "x"]);
    assert_eq!((due[0].letter, due[0].attempts), (Some(letters[0]), 0));
}

pub(super) async fn a_message_that_is_there_already_is_not_readmitted<D: TestDatabase>(
    place: &Place<D>,
) {
    let message = keyed("a", b"there");
    place.hold("c", &[failed(&message, LONG)]).await;
    let letter = place.bury(&[dead(&message)]).await[0];
    let mut again = message.clone();
    again.payload = "again".into();
    assert!(!place.readmit_held(letter, &again).await);
    let rows = place.held_of("a").await;
    assert_eq!(texts(&rows), ["there"]);
    assert_eq!((rows[0].attempts, rows[0].letter), (1, None));
    // At another consumer it is not there.
    place.hold("other", &[failed(&message, LONG)]).await;
    assert_eq!(texts(&place.held_of("a").await), ["there"]);
}

pub(super) async fn a_replay_that_fails_again_is_parked_again_in_its_place<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let head = keyed("a", b"a1");
    place
        .hold("c", &[failed(&head, NOW), successor(&keyed("a", b"a2"))])
        .await;
    let (position, letter) = place.park(&fence, &head).await;
    for round in 1..4 {
        assert!(place.readmit_held(letter, &head).await);
        let row = place.due_rows().await.remove(0);
        assert_eq!((row.position, row.letter), (position, Some(letter)));
        place
            .done(async |store, session| {
                let again = NewDeadLetter {
                    again: row.letter,
                    ..dead_and_parked(&head)
                };
                assert_eq!(store.bury(session, &[again]).await?, [letter]);
                store
                    .park_held(session, "c", &fence, position, letter)
                    .await
            })
            .await;
        let dead = place.letter(letter).await;
        assert_eq!((dead.state, dead.parked), (LetterState::Dead, true));
        assert_eq!((dead.replays, dead.successors), (round, 1));
        assert_eq!(place.due_texts().await, [""; 0]);
        assert_eq!(texts(&place.held_of("a").await), ["", "a2"]);
    }
}

/// The message leaves the table first, which tells its letter that it got through; then it dies.
pub(super) async fn a_replay_that_fails_again_lets_its_key_go_on_where_that_is_the_policy<
    D: TestDatabase,
>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let head = keyed("a", b"a1");
    place
        .hold("c", &[failed(&head, NOW), successor(&keyed("a", b"a2"))])
        .await;
    let (position, letter) = place.park(&fence, &head).await;
    assert!(place.readmit_held(letter, &head).await);
    place
        .done(async |store, session| {
            store.release(session, "c", &fence, &[position]).await?;
            let again = NewDeadLetter {
                again: Some(letter),
                ..dead(&head)
            };
            store.bury(session, &[again]).await
        })
        .await;
    let dead = place.letter(letter).await;
    assert_eq!((dead.state, dead.parked), (LetterState::Dead, false));
    assert_eq!((dead.ended_at, dead.replays), (None, 1));
    assert_eq!(place.due_texts().await, ["a2"]);
}

pub(super) async fn a_replay_that_is_postponed_stays_with_its_letter<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let message = keyless(b"x");
    let letter = place.bury(&[dead(&message)]).await[0];
    assert!(place.readmit_held(letter, &message).await);
    let position = place.due_rows().await[0].position;
    for attempts in 1..4 {
        let postponed = place
            .done(async |store, session| {
                store
                    .postpone(
                        session,
                        "c",
                        &fence,
                        position,
                        Postponement {
                            error: Some("again"),
                            delay: NOW,
                        },
                    )
                    .await
            })
            .await;
        assert!(postponed);
        let row = place.due_rows().await.remove(0);
        assert_eq!((row.attempts, row.letter), (attempts, Some(letter)));
        assert!(row.failed_at.is_some());
        assert_eq!(place.letter(letter).await.state, LetterState::Replaying);
    }
    place.release(&fence, &[position]).await;
    assert_eq!(place.letter(letter).await.state, LetterState::Replayed);
}

pub(super) async fn a_readmitted_message_keeps_when_it_was_enqueued<D: TestDatabase>(
    place: &Place<D>,
) {
    place.enqueue(&[keyed("a", b"a1")]).await;
    let enqueued = place.pending().await.remove(0).message.unwrap();
    assert!(enqueued.enqueued_at.is_some());
    let letter = place.bury(&[dead(&enqueued)]).await[0];
    assert!(place.readmit_held(letter, &enqueued).await);
    assert_eq!(place.due_rows().await[0].envelope, enqueued);
    assert_eq!(text_of(&without_time(enqueued)), "a1");
}

pub(super) async fn a_letter_does_not_get_through_without_a_valid_fence<D: TestDatabase>(
    place: &Place<D>,
) {
    let good = place.own_partition("c").await;
    let message = keyed("a", b"a1");
    place.hold("c", &[failed(&message, NOW)]).await;
    let (position, letter) = place.park(&good, &message).await;
    assert!(place.readmit_held(letter, &message).await);
    for (what, fence) in place.bad_fences(&good).await {
        assert!(
            place.release(&fence, &[position]).await.is_empty(),
            "a fence {what}"
        );
    }
    place.expire(&good).await;
    assert!(place.release(&good, &[position]).await.is_empty());
    assert_eq!(place.letter(letter).await.state, LetterState::Replaying);
    assert_eq!(place.due_texts().await, ["a1"]);
}

pub(super) async fn letters_that_are_released_together_all_got_through<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let messages: Vec<_> = (0..5).map(|_| keyless(b"x")).collect();
    let new: Vec<NewDeadLetter> = messages.iter().map(dead).collect();
    let letters = place.bury(&new).await;
    for (letter, message) in letters.iter().zip(&messages).take(4) {
        assert!(place.readmit_held(*letter, message).await);
    }
    let due = place.due_rows().await;
    let positions: Vec<i64> = due[..3].iter().map(|row| row.position).collect();
    assert_eq!(place.release(&fence, &positions).await, positions);
    let mut states = Vec::new();
    for letter in letters {
        states.push(place.letter(letter).await.state);
    }
    use LetterState::{Dead, Replayed, Replaying};
    assert_eq!(states, [Replayed, Replayed, Replayed, Replaying, Dead]);
}
