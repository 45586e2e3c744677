//! Messages that are replayed are taken back.

use std::time::Duration;

use posta::store::{
    Fence, LeaseStore, LetterId, MemberId, NewDeadLetter, Origin, OutboxStore, Recall, RetryStore,
};

pub(super) use super::given::fresh as start;
use super::given::{LONG, Place, ids, keyed, keyless, named, payloads, successor};
use super::letters::dead;
use crate::harness::database::TestDatabase;

const NOW: Duration = Duration::ZERO;

pub(super) async fn a_recalled_message_keeps_its_keys_place<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    let (head, second) = (keyed("a", b"a1"), keyed("a", b"a2"));
    place
        .hold("c", &[successor(&head), successor(&second)])
        .await;
    let (position, letter) = place.park(&fence, &head).await;
    for _ in 0..2 {
        assert!(place.readmit_held(letter, &head).await);
        assert_eq!(place.due_texts().await, ["a1"]);
        assert_eq!(recall_held(place, letter, true).await, Recall::Back);
        assert!(place.due_rows().await.is_empty());
        assert_eq!(place.next_retry().await, None);
        let rows = place.held_of("a").await;
        assert_eq!((rows[0].position, rows[0].parked), (position, true));
        assert_eq!(rows[1].envelope.id, second.id);
        let change = posta::store::LetterChange::Recall;
        assert_eq!(place.change(&[letter], change).await, [letter]);
        assert_eq!(place.letter(letter).await.successors, 1);
    }
    // What ran it meanwhile, without a claim, settles nothing.
    assert!(place.release(&fence, &[position]).await.is_empty());
}

pub(super) async fn a_recalled_message_without_a_place_lets_its_key_go_on<D: TestDatabase>(
    place: &Place<D>,
) {
    let head = keyed("a", b"again");
    let letter = place.bury(&[dead(&head)]).await[0];
    assert!(place.readmit_held(letter, &head).await);
    place.hold("c", &[successor(&keyed("a", b"next"))]).await;
    assert_eq!(place.due_texts().await, ["again"]);
    assert_eq!(recall_held(place, letter, false).await, Recall::Back);
    assert_eq!(place.due_texts().await, ["next"]);
    assert_eq!(recall_held(place, letter, false).await, Recall::Gone);
    let keyless = keyless(b"x");
    let letter = place.bury(&[dead(&keyless)]).await[0];
    assert!(place.readmit_held(letter, &keyless).await);
    assert_eq!(recall_held(place, letter, false).await, Recall::Back);
    assert_eq!(place.due_texts().await, ["next"]);
}

pub(super) async fn a_message_that_a_living_process_has_claimed_is_not_recalled<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let head = keyed("a", b"a1");
    place.hold("c", &[successor(&head)]).await;
    let (position, letter) = place.park(&fence, &head).await;
    assert!(place.readmit_held(letter, &head).await);
    claim(place, &fence, position, fence.owner).await;
    assert_eq!(recall_held(place, letter, true).await, Recall::Running);
    // One that drains is no member any more, and owns its leases until it is done.
    place
        .done(async |store, session| {
            store
                .join(session, &fence.resource, 1, fence.owner, NOW)
                .await
        })
        .await;
    assert_eq!(recall_held(place, letter, true).await, Recall::Running);
    assert_eq!(place.due_texts().await, ["a1"]);
    // A claim that was left behind is nobody's.
    place.expire(&fence).await;
    assert_eq!(recall_held(place, letter, true).await, Recall::Back);
    assert!(place.due_rows().await.is_empty());
}

/// Nobody waits: who is at the row may be about to write the letter, which the operator has.
pub(super) async fn a_message_that_is_just_being_handled_is_not_recalled<D: TestDatabase>(
    place: &Place<D>,
) {
    if !D::CONCURRENT_WRITERS {
        return;
    }
    let fence = place.own_partition("c").await;
    let head = keyed("a", b"a1");
    place.hold("c", &[successor(&head)]).await;
    let (position, letter) = place.park(&fence, &head).await;
    assert!(place.readmit_held(letter, &head).await);
    let mut at_it = place.begin().await;
    let taken = place
        .store
        .release(&mut at_it, "c", &fence, &[position])
        .await
        .unwrap();
    assert_eq!(taken, [position]);
    assert_eq!(recall_held(place, letter, true).await, Recall::Running);
    at_it.commit().await.unwrap();
    assert_eq!(recall_held(place, letter, true).await, Recall::Gone);
}

pub(super) async fn a_recalled_row_keeps_its_keys_place<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let head = keyed("a", b"a1");
    place.enqueue(&[head.clone(), keyed("a", b"a2")]).await;
    let row = named(&place.pending().await, &["a1"])[0];
    let letter = place.park_row(&fences, row, &head).await;
    assert!(place.readmit(letter, &head).await);
    assert_eq!(payloads(&place.pending().await), ["a1", "a2"]);
    assert_eq!(recall(place, letter, true).await, Recall::Running);
    // On hold, it cannot be on its way.
    place.fail(&fences, &[row], LONG).await;
    assert_eq!(recall(place, letter, true).await, Recall::Back);
    assert!(place.pending().await.is_empty());
    assert!(place.settle(&fences, &[row]).await.is_empty());
    assert!(place.readmit(letter, &head).await);
    // Nor when nobody dispatches.
    for fence in &fences {
        place.expire(fence).await;
    }
    assert_eq!(recall(place, letter, true).await, Recall::Back);
    assert!(place.pending().await.is_empty());
}

pub(super) async fn a_recalled_row_without_a_place_is_gone<D: TestDatabase>(place: &Place<D>) {
    let message = keyed("a", b"again");
    let new = NewDeadLetter {
        origin: Origin::Dispatch,
        ..dead(&message)
    };
    let letter = place.bury(&[new]).await[0];
    assert!(place.readmit(letter, &message).await);
    place.enqueue(&[keyed("a", b"next")]).await;
    assert_eq!(ids(&place.pending().await).len(), 2);
    assert_eq!(recall(place, letter, false).await, Recall::Back);
    assert_eq!(payloads(&place.pending().await), ["next"]);
    assert_eq!(recall(place, letter, false).await, Recall::Gone);
}

async fn recall_held<D: TestDatabase>(
    place: &Place<D>,
    letter: LetterId,
    keep_place: bool,
) -> Recall {
    place
        .done(async |store, session| store.recall_held(session, "c", letter, keep_place).await)
        .await
}

async fn recall<D: TestDatabase>(place: &Place<D>, letter: LetterId, keep_place: bool) -> Recall {
    place
        .done(async |store, session| store.recall(session, letter, keep_place).await)
        .await
}

async fn claim<D: TestDatabase>(place: &Place<D>, fence: &Fence, position: i64, member: MemberId) {
    let claims = place
        .done(async |store, session| store.claim(session, "c", fence, &[position], member).await)
        .await;
    assert_eq!(claims.len(), 1);
}
