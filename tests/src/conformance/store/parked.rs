//! The places of dead letters in the retry table: what waits behind them, and how their keys go on.

use std::time::Duration;

use posta::store::{
    Admission, DeadLetterStore, LetterId, LetterState, MemberId, Postponement, RetryStore,
};

pub(super) use super::given::fresh as start;
use super::given::{LONG, Place, failed, key_of, keyed, keyless, successor};
use super::letters::{any, dead_and_parked, place_of, texts, waiting};
use crate::harness::database::TestDatabase;

const NOW: Duration = Duration::ZERO;

pub(super) async fn the_successors_of_a_parked_message_wait_for_it<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let (head, second, third) = (keyed("a", b"a1"), keyed("a", b"a2"), keyed("a", b"a33"));
    place
        .hold(
            "c",
            &[failed(&head, NOW), successor(&second), failed(&third, NOW)],
        )
        .await;
    let (position, letter) = place.park(&fence, &head).await;
    assert_eq!(place.due_texts().await, [""; 0]);
    assert_eq!(place.next_retry().await, None);
    let held = place
        .done(async |store, session| store.held(session, "c").await)
        .await;
    assert_eq!(
        held,
        (2, 1),
        "the place is no message, and its key is on hold"
    );
    let rows = place.held_of("a").await;
    assert_eq!(texts(&rows), ["", "a2", "a33"]);
    assert_eq!(rows[0].envelope.id, head.id);
    assert_eq!((rows[0].position, rows[0].letter), (position, Some(letter)));
    assert_eq!(
        rows.iter().map(|row| row.parked).collect::<Vec<_>>(),
        [true, false, false]
    );
    assert_eq!(place.letter(letter).await.successors, 2);
    let behind = place.successors(letter, 10).await;
    assert_eq!(
        behind,
        [
            waiting(&second, 0, &behind[0]),
            waiting(&third, 1, &behind[1])
        ]
    );
    assert_eq!(place.successors(letter, 1).await.len(), 1);
    // Other keys, and messages without one, go on.
    place
        .hold(
            "c",
            &[failed(&keyed("b", b"b1"), NOW), failed(&keyless(b"x"), NOW)],
        )
        .await;
    assert_eq!(place.due_texts().await, ["b1", "x"]);
}

pub(super) async fn a_delivery_that_is_parked_at_once_keeps_its_keys_place<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let first = keyed("a", b"never read");
    let letter = place.bury(&[dead_and_parked(&first)]).await[0];
    place.hold("c", &[place_of(&first, letter)]).await;
    let later = keyed("a", b"a2");
    let admission = place
        .admit("c", &fence, &[later.id], &[key_of("a"), key_of("b")])
        .await;
    let Admission::Admitted { held, .. } = admission else {
        panic!("the fence is valid");
    };
    assert_eq!(held, [key_of("a")].into());
    place.hold("c", &[successor(&later)]).await;
    assert_eq!(place.due_texts().await, [""; 0]);
    let rows = place.held_of("a").await;
    assert_eq!(texts(&rows), ["", "a2"]);
    assert!(rows[0].parked && rows[0].letter == Some(letter));
}

pub(super) async fn an_unparked_keys_messages_become_due_in_order<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let head = keyed("a", b"a1");
    place
        .hold(
            "c",
            &[
                failed(&head, NOW),
                failed(&keyed("a", b"a2"), LONG),
                successor(&keyed("a", b"a3")),
            ],
        )
        .await;
    let (_, letter) = place.park(&fence, &head).await;
    assert!(place.unpark_held(letter).await);
    assert!(!place.unpark_held(letter).await, "it kept its place once");
    for expected in ["a2", "a3"] {
        let due = place.due_rows().await;
        assert_eq!(texts(&due), [expected]);
        assert_eq!(place.release(&fence, &[due[0].position]).await.len(), 1);
    }
    assert!(place.held_of("a").await.is_empty());
    // The letter itself is the operator's to change.
    assert_eq!(place.letter(letter).await.state, LetterState::Dead);
}

pub(super) async fn what_is_not_committed_parks_and_readmits_nothing<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let head = keyed("a", b"a1");
    place.hold("c", &[failed(&head, NOW)]).await;
    let position = place.position_of(&head).await;
    let mut session = place.begin().await;
    let letters = place
        .store
        .bury(&mut session, &[dead_and_parked(&head)])
        .await
        .unwrap();
    let parked = place
        .store
        .park_held(&mut session, "c", &fence, position, letters[0])
        .await
        .unwrap();
    assert!(parked);
    session.rollback().await;
    assert_eq!(place.due_texts().await, ["a1"]);
    assert!(place.letters(&any()).await.is_empty());
}

pub(super) async fn a_place_is_not_run<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    let head = keyed("a", b"a1");
    place
        .hold("c", &[failed(&head, NOW), successor(&keyed("a", b"a2"))])
        .await;
    let (position, letter) = place.park(&fence, &head).await;
    let before = place.held_of("a").await.remove(0);
    let member = MemberId::random();
    let (together, alone, released, postponed, parked) = place
        .done(async |store, session| {
            let positions = [position];
            let together = store
                .claim(session, "c", &fence, &positions, member)
                .await?;
            let alone = store
                .claim_alone(session, "c", &fence, position, member)
                .await?;
            let released = store.release(session, "c", &fence, &positions).await?;
            let postponed = store
                .postpone(
                    session,
                    "c",
                    &fence,
                    position,
                    Postponement {
                        error: Some("no"),
                        delay: NOW,
                    },
                )
                .await?;
            let parked = store
                .park_held(session, "c", &fence, position, LetterId(i64::MAX))
                .await?;
            Ok((together, alone, released, postponed, parked))
        })
        .await;
    assert_eq!((together, alone, released), (vec![], None, vec![]));
    assert_eq!((postponed, parked), (false, false));
    let after = place.held_of("a").await.remove(0);
    assert_eq!(
        (after.attempts, after.letter),
        (before.attempts, Some(letter))
    );
    assert_eq!(place.due_texts().await, [""; 0]);
}

pub(super) async fn nothing_is_parked_without_a_valid_fence<D: TestDatabase>(place: &Place<D>) {
    let good = place.own_partition("c").await;
    let head = keyed("a", b"a1");
    place.hold("c", &[failed(&head, NOW)]).await;
    let position = place.position_of(&head).await;
    let letter = place.bury(&[dead_and_parked(&head)]).await[0];
    let mut fences = place.bad_fences(&good).await;
    place.expire(&good).await;
    fences.push(("whose time is over", good));
    for (what, fence) in fences {
        let parked = place
            .done(async |store, session| {
                store
                    .park_held(session, "c", &fence, position, letter)
                    .await
            })
            .await;
        assert!(!parked, "a fence {what}");
    }
    let due = place.due_rows().await;
    assert_eq!(texts(&due), ["a1"]);
    assert!(!due[0].parked && due[0].letter.is_none());
}

pub(super) async fn a_key_with_two_places_waits_for_both_in_order<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let (first, second) = (keyed("a", b"a1"), keyed("a", b"a3"));
    place
        .hold(
            "c",
            &[
                failed(&first, NOW),
                successor(&keyed("a", b"a2")),
                successor(&second),
                successor(&keyed("a", b"a4")),
            ],
        )
        .await;
    let (_, one) = place.park(&fence, &first).await;
    let (_, two) = place.park(&fence, &second).await;
    assert_eq!(place.due_texts().await, [""; 0]);
    assert_eq!(
        (
            place.letter(one).await.successors,
            place.letter(two).await.successors
        ),
        (2, 1)
    );
    // The second one's turn has not come, wherever its message is.
    assert!(place.readmit_held(two, &second).await);
    assert_eq!(place.due_texts().await, [""; 0]);
    assert!(place.unpark_held(one).await);
    for expected in ["a2", "a3", "a4"] {
        let due = place.due_rows().await;
        assert_eq!(texts(&due), [expected]);
        place.release(&fence, &[due[0].position]).await;
    }
}

pub(super) async fn a_key_that_comes_to_a_place_waits_there<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    let (first, second) = (keyed("a", b"a1"), keyed("a", b"a2"));
    place
        .hold(
            "c",
            &[
                failed(&first, NOW),
                successor(&second),
                successor(&keyed("a", b"a3")),
            ],
        )
        .await;
    let (_, letter) = place.park(&fence, &second).await;
    let position = place.position_of(&first).await;
    assert_eq!(place.due_texts().await, ["a1"]);
    assert_eq!(place.release(&fence, &[position]).await, [position]);
    assert_eq!(place.due_texts().await, [""; 0]);
    assert_eq!(place.next_retry().await, None);
    assert!(place.unpark_held(letter).await);
    assert_eq!(place.due_texts().await, ["a3"]);
}

pub(super) async fn a_place_behind_a_head_leaves_without_waking_it<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let (first, second) = (keyed("a", b"a1"), keyed("a", b"a2"));
    place
        .hold("c", &[failed(&first, LONG), successor(&second)])
        .await;
    let (_, letter) = place.park(&fence, &second).await;
    assert!(place.unpark_held(letter).await);
    assert_eq!(place.due_texts().await, [""; 0]);
    assert_eq!(texts(&place.held_of("a").await), ["a1"]);
}

pub(super) async fn places_of_other_consumers_stay<D: TestDatabase>(place: &Place<D>) {
    let message = keyed("a", b"a1");
    let letter = place.bury(&[dead_and_parked(&message)]).await[0];
    place.hold("c", &[place_of(&message, letter)]).await;
    let taken = place
        .done(async |store, session| store.unpark_held(session, "other", letter).await)
        .await;
    assert!(!taken, "it keeps no place there");
    let rows = place.held_of("a").await;
    assert!(rows.len() == 1 && rows[0].parked);
    assert!(place.unpark_held(letter).await);
}
