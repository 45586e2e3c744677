//! The places of dead letters in the outbox.

use std::collections::HashSet;
use std::time::Duration;

use posta::Slot;
use posta::store::{Backlog, Fence, LetterState, NewDeadLetter, Origin, OutboxStore, RowId};

pub(super) use super::given::fresh as start;
use super::given::{
    LONG, Place, ids, keyed, keyless, messages, named, odd_payloads, payloads, without_time,
};
use super::letters::{dead, waiting};
use crate::harness::database::TestDatabase;

pub(super) async fn the_successors_of_a_parked_row_wait_and_nobody_else<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let (head, second, third) = (keyed("a", b"a1"), keyed("a", b"a2"), keyed("a", b"a33"));
    place
        .enqueue(&[
            head.clone(),
            second.clone(),
            keyed("b", b"b1"),
            keyless(b"x"),
        ])
        .await;
    let row = named(&place.pending().await, &["a1"])[0];
    let letter = place.park_row(&fences, row, &head).await;
    place.enqueue(std::slice::from_ref(&third)).await;
    let mut left = payloads(&place.pending().await);
    left.sort();
    assert_eq!(left, ["b1", "x"]);
    assert_eq!(place.letter(letter).await.successors, 2);
    let behind = place.successors(letter, 10).await;
    assert_eq!(
        behind,
        [
            waiting(&second, 0, &behind[0]),
            waiting(&third, 0, &behind[1])
        ]
    );
    assert_eq!(place.successors(letter, 1).await.len(), 1);
    let table = place.table("outbox");
    let kept = place
        .texts(&format!(
            "SELECT {} AS value FROM {table} WHERE parked",
            D::hex("payload")
        ))
        .await;
    assert_eq!(kept, [Some(String::new())], "the payload is the letter's");
}

pub(super) async fn a_readmitted_row_goes_out_first_and_its_successors_in_order<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let mut head = keyed("a", b"a1");
    place.enqueue(&[head.clone(), keyed("a", b"a2")]).await;
    let row = named(&place.pending().await, &["a1"])[0];
    place.fail(&fences, &[row], Duration::ZERO).await;
    let letter = place.park_row(&fences, row, &head).await;
    head.payload = "a1, revised".into();
    head.version = 2;
    assert!(place.readmit(letter, &head).await);
    let rows = place.pending().await;
    assert_eq!(payloads(&rows), ["a1, revised", "a2"]);
    assert_eq!(without_time(messages(&rows)[0].clone()), head);
    assert_eq!((rows[0].id, rows[0].attempts), (row, 0));
    assert_eq!((rows[0].letter, rows[0].failed_at), (Some(letter), None));
    assert_eq!(rows[1].letter, None);
    assert_eq!(place.letter(letter).await.state, LetterState::Replaying);
    assert_eq!(place.settle(&fences, &ids(&rows)).await.len(), 2);
    let replayed = place.letter(letter).await;
    assert_eq!(
        (replayed.state, replayed.parked),
        (LetterState::Replayed, false)
    );
    assert!(replayed.ended_at >= Some(replayed.dead_at));
}

pub(super) async fn a_row_is_readmitted_byte_for_byte<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    for payload in odd_payloads() {
        let (kept, without) = (keyed("a", &payload), keyed("a", &payload));
        place.enqueue(std::slice::from_ref(&kept)).await;
        let row = place.pending().await[0].id;
        let letter = place.park_row(&fences, row, &kept).await;
        assert!(place.readmit(letter, &kept).await);
        let other = place.bury(&[of_dispatch(dead(&without))]).await[0];
        assert!(place.readmit(other, &without).await);
        let rows = place.pending().await;
        let found: Vec<_> = messages(&rows).into_iter().map(without_time).collect();
        assert!(found == [kept, without], "{} bytes", payload.len());
        place.settle(&fences, &ids(&rows)).await;
    }
}

pub(super) async fn a_row_without_a_place_is_readmitted_at_the_end<D: TestDatabase>(
    place: &Place<D>,
) {
    let message = keyed("a", b"again");
    let letter = place.bury(&[of_dispatch(dead(&message))]).await[0];
    place.enqueue(&[keyed("a", b"a1"), keyed("a", b"a2")]).await;
    assert!(place.readmit(letter, &message).await);
    let rows = place.pending().await;
    assert_eq!(payloads(&rows), ["a1", "a2", "again"]);
    assert_eq!((rows[2].letter, rows[2].attempts), (Some(letter), 0));
    assert_eq!(rows[2].id.slot, message.slot());
}

pub(super) async fn a_row_that_waits_already_is_not_readmitted<D: TestDatabase>(place: &Place<D>) {
    let message = keyed("a", b"waits");
    place.enqueue(std::slice::from_ref(&message)).await;
    let letter = place.bury(&[of_dispatch(dead(&message))]).await[0];
    let mut again = message.clone();
    again.payload = "again".into();
    assert!(!place.readmit(letter, &again).await);
    let rows = place.pending().await;
    assert_eq!(payloads(&rows), ["waits"]);
    assert_eq!(rows[0].letter, None);
}

pub(super) async fn an_unparked_key_goes_on<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let head = keyed("a", b"a1");
    place
        .enqueue(&[head.clone(), keyed("a", b"a2"), keyed("a", b"a3")])
        .await;
    let row = named(&place.pending().await, &["a1"])[0];
    let letter = place.park_row(&fences, row, &head).await;
    assert_eq!(place.successors(letter, 10).await.len(), 2);
    assert!(place.unpark_row(letter).await);
    assert_eq!(
        place.successors(letter, 10).await,
        [],
        "nothing waits for it"
    );
    assert!(!place.unpark_row(letter).await);
    assert_eq!(payloads(&place.pending().await), ["a2", "a3"]);
    assert_eq!(place.rows("outbox").await, 2);
}

pub(super) async fn a_place_says_that_and_why_it_has_failed<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let messages = [keyed("a", b"too large"), keyed("b", b"returned")];
    place.enqueue(&messages).await;
    let rows = ids(&place.pending().await);
    place.fail(&fences, &rows[1..], LONG).await;
    let letter = place.park_row(&fences, rows[0], &messages[0]).await;
    place.park_row(&fences, rows[1], &messages[1]).await;
    let table = place.table("outbox");
    let said = place
        .texts(&format!(
            "SELECT attempts || ' ' || last_error AS value FROM {table} ORDER BY position"
        ))
        .await;
    let expected = [
        format!("1 dead letter {}", letter.0),
        "2 the broker returned it".to_owned(),
    ];
    assert_eq!(said, expected.map(Some));
}

pub(super) async fn parked_rows_are_in_the_backlog_by_themselves<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let backlog = async || {
        place
            .done(async |store, session| store.backlog(session).await)
            .await
    };
    let (a, b) = (keyed("a", b"a1"), keyed("b", b"b1"));
    place.enqueue(&[a.clone(), b.clone()]).await;
    let rows = place.pending().await;
    place.park_row(&fences, named(&rows, &["a1"])[0], &a).await;
    place.park_row(&fences, named(&rows, &["b1"])[0], &b).await;
    let alone = backlog().await;
    assert_eq!(
        alone,
        Backlog {
            parked: 2,
            ..Backlog::default()
        }
    );
    place
        .enqueue(&[keyed("a", b"a2"), keyed("d", b"d1"), keyless(b"x")])
        .await;
    let held = named(&place.pending().await, &["d1"]);
    place.fail(&fences, &held, LONG).await;
    let found = backlog().await;
    assert_eq!((found.rows, found.held, found.parked), (3, 1, 2));
}

pub(super) async fn parked_rows_have_no_due_time<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let next_due = async || {
        let lanes: Vec<Slot> = Slot::all().collect();
        place
            .done(async |store, session| store.next_due(session, &lanes).await)
            .await
    };
    let head = keyed("a", b"a1");
    place.enqueue(&[head.clone(), keyed("b", b"b1")]).await;
    let rows = place.pending().await;
    place
        .park_row(&fences, named(&rows, &["a1"])[0], &head)
        .await;
    assert_eq!(next_due().await, None);
    place.fail(&fences, &named(&rows, &["b1"]), LONG).await;
    let due = next_due().await.expect("a row on hold");
    assert!(due <= LONG && due > LONG - Duration::from_secs(300));
}

pub(super) async fn parked_rows_do_not_fill_a_batch<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let parked: Vec<_> = (0..40)
        .map(|n| keyed(&format!("k{n}"), b"parked"))
        .collect();
    place.enqueue(&parked).await;
    let mut waiting: Vec<_> = Vec::new();
    for row in place.pending().await {
        let envelope = row.message.unwrap();
        place.park_row(&fences, row.id, &envelope).await;
        waiting.push(keyed(envelope.key.unwrap().as_str(), b"waits"));
    }
    place.enqueue(&waiting).await;
    place.enqueue(&[keyed("fresh", b"fresh")]).await;
    assert_eq!(payloads(&place.pending_at_most(10).await), ["fresh"]);
}

pub(super) async fn rows_stay_unparked_without_a_valid_fence<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let head = keyed("a", b"a1");
    place.enqueue(std::slice::from_ref(&head)).await;
    let row = place.pending().await[0].id;
    let good = &fences[usize::from(row.slot.number())];
    let letter = place.bury(&[of_dispatch(dead(&head))]).await[0];
    let park = async |fences: &[Fence]| {
        place
            .done(async |store, session| store.park(session, fences, &[(row, letter)]).await)
            .await
    };
    for (what, fence) in place.bad_fences(good).await {
        assert_eq!(park(&[fence]).await, [], "a fence {what}");
    }
    assert_eq!(park(&[]).await, [], "no fence");
    let others: Vec<_> = fences
        .iter()
        .filter(|fence| *fence != good)
        .cloned()
        .collect();
    assert_eq!(park(&others).await, [], "fences of other lanes");
    place.expire(good).await;
    assert_eq!(park(&fences).await, [], "a fence whose time is over");
    assert_eq!(payloads(&place.pending().await), ["a1"]);
}

pub(super) async fn several_rows_are_parked_each_for_its_letter<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let envelopes: Vec<_> = (0..5).map(|n| keyed(&format!("k{n}"), b"")).collect();
    place.enqueue(&envelopes).await;
    let mut rows = place.pending().await;
    rows.sort_by_key(|row| row.id.position);
    let new: Vec<NewDeadLetter> = envelopes
        .iter()
        .map(|envelope| of_dispatch(dead(envelope)))
        .collect();
    let letters = place.bury(&new).await;
    let pairs: Vec<_> = ids(&rows)
        .into_iter()
        .zip(letters.iter().copied())
        .rev()
        .collect();
    let parked = place
        .done(async |store, session| store.park(session, &fences, &pairs).await)
        .await;
    let parked: HashSet<RowId> = parked.into_iter().collect();
    assert_eq!(parked, ids(&rows).into_iter().collect());
    let again = place
        .done(async |store, session| store.park(session, &fences, &pairs).await)
        .await;
    assert_eq!(again, [], "they are places already");
    for (letter, envelope) in letters.iter().zip(&envelopes) {
        assert!(place.readmit(*letter, envelope).await);
        let rows = place.pending().await;
        assert_eq!(without_time(messages(&rows)[0].clone()), *envelope);
        assert_eq!(rows[0].letter, Some(*letter));
        place.settle(&fences, &ids(&rows)).await;
    }
}

pub(super) async fn a_place_is_not_settled<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let head = keyed("a", b"a1");
    place.enqueue(&[head.clone(), keyed("a", b"a2")]).await;
    let row = named(&place.pending().await, &["a1"])[0];
    let letter = place.park_row(&fences, row, &head).await;
    assert_eq!(place.settle(&fences, &[row]).await, []);
    assert_eq!(place.fail(&fences, &[row], Duration::ZERO).await, []);
    let removed = place
        .done(async |store, session| store.remove(session, &fences, &[row]).await)
        .await;
    assert_eq!(removed, []);
    assert!(place.pending().await.is_empty());
    assert_eq!(place.rows("dispatched").await, 0);
    assert_eq!(place.letter(letter).await.successors, 1);
}

pub(super) async fn a_row_does_not_get_through_without_a_valid_fence<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let head = keyed("a", b"a1");
    place.enqueue(std::slice::from_ref(&head)).await;
    let row = place.pending().await[0].id;
    let letter = place.park_row(&fences, row, &head).await;
    assert!(place.readmit(letter, &head).await);
    let good = &fences[usize::from(row.slot.number())];
    for (what, fence) in place.bad_fences(good).await {
        assert!(
            place.settle(&[fence], &[row]).await.is_empty(),
            "a fence {what}"
        );
    }
    assert_eq!(place.letter(letter).await.state, LetterState::Replaying);
    // A failure is one of the replay, not its end.
    place.fail(&fences, &[row], Duration::ZERO).await;
    let failed = place.pending().await.remove(0);
    assert_eq!((failed.attempts, failed.letter), (1, Some(letter)));
    assert_eq!(place.letter(letter).await.state, LetterState::Replaying);
    assert_eq!(place.settle(&fences, &[row]).await, [row]);
    assert_eq!(place.letter(letter).await.state, LetterState::Replayed);
}

pub(super) async fn a_row_knows_when_it_failed_first<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    place.enqueue(&[keyed("a", b"a1")]).await;
    let row = place.pending().await.remove(0);
    assert_eq!(row.failed_at, None);
    place.fail(&fences, &[row.id], Duration::ZERO).await;
    let first = place.pending().await.remove(0).failed_at;
    assert!(first.is_some());
    for _ in 0..3 {
        place.fail(&fences, &[row.id], Duration::ZERO).await;
    }
    let row = place.pending().await.remove(0);
    assert_eq!((row.failed_at, row.attempts), (first, 4));
}

fn of_dispatch(letter: NewDeadLetter) -> NewDeadLetter {
    NewDeadLetter {
        origin: Origin::Dispatch,
        ..letter
    }
}
