//! What can be dispatched now, and what must wait.

use std::collections::HashSet;
use std::time::Duration;

use posta::message::Envelope;
use posta::store::{OutboxStore, RowId};
use posta::{MessageId, Slot};

pub(super) use super::given::fresh as start;
use super::given::{LONG, Place, ids, key_of, keyed, keyless, named, payloads};
use crate::harness::database::TestDatabase;

pub(super) async fn no_more_rows_than_the_limit_come_and_each_lanes_first<D: TestDatabase>(
    place: &Place<D>,
) {
    let envelopes: Vec<Envelope> = (0..300)
        .map(|n| keyed(&format!("k{}", n % 90), n.to_string().as_bytes()))
        .collect();
    place.enqueue(&envelopes).await;
    assert!(place.pending_at_most(0).await.is_empty());
    for limit in [1, 7, 64, 100, 299, 300, 301] {
        let rows = place.pending_at_most(limit).await;
        assert!(!rows.is_empty() && rows.len() <= limit, "limit {limit}");
        for slot in Slot::all() {
            let of_lane: Vec<Envelope> = envelopes
                .iter()
                .filter(|envelope| envelope.slot() == slot)
                .cloned()
                .collect();
            let found: Vec<MessageId> = rows
                .iter()
                .filter(|row| row.id.slot == slot)
                .map(|row| row.message.as_ref().unwrap().id)
                .collect();
            let first: Vec<MessageId> = of_lane
                .iter()
                .take(found.len())
                .map(|envelope| envelope.id)
                .collect();
            assert_eq!(found, first, "limit {limit}, lane {slot}");
        }
    }
}

pub(super) async fn only_rows_of_the_lanes_asked_for_come<D: TestDatabase>(place: &Place<D>) {
    let envelopes: Vec<Envelope> = (0..200).map(|n| keyed(&format!("k{n}"), b"")).collect();
    place.enqueue(&envelopes).await;
    let lanes: Vec<Slot> = Slot::all().filter(|lane| lane.number() % 3 == 0).collect();
    let mut session = place.begin().await;
    let rows = place
        .store
        .pending(&mut session, &lanes, &[], 1000)
        .await
        .unwrap();
    let none = place
        .store
        .pending(&mut session, &[], &[], 1000)
        .await
        .unwrap();
    session.commit().await.unwrap();
    assert!(none.is_empty());
    let expected = envelopes
        .iter()
        .filter(|envelope| lanes.contains(&envelope.slot()))
        .count();
    assert_eq!(rows.len(), expected);
    assert!(rows.iter().all(|row| lanes.contains(&row.id.slot)));
}

pub(super) async fn rows_in_flight_are_left_out<D: TestDatabase>(place: &Place<D>) {
    let envelopes: Vec<Envelope> = (0..40)
        .map(|n| keyed(&format!("k{}", n % 5), n.to_string().as_bytes()))
        .collect();
    place.enqueue(&envelopes).await;
    let lanes: Vec<Slot> = Slot::all().collect();
    let all = place.pending().await;
    let in_flight: Vec<RowId> = ids(&all).into_iter().step_by(3).collect();
    let mut session = place.begin().await;
    let rest = place
        .store
        .pending(&mut session, &lanes, &in_flight, 1000)
        .await
        .unwrap();
    // They do not fill the batch either.
    let few = place
        .store
        .pending(&mut session, &lanes, &ids(&all)[..39], 1)
        .await
        .unwrap();
    session.commit().await.unwrap();
    let expected: HashSet<RowId> = ids(&all)
        .into_iter()
        .filter(|id| !in_flight.contains(id))
        .collect();
    assert_eq!(ids(&rest).into_iter().collect::<HashSet<_>>(), expected);
    assert_eq!(ids(&few), ids(&all)[39..]);
}

pub(super) async fn a_held_row_holds_its_successors_and_nobody_else<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    place
        .enqueue(&[
            keyed("a", b"a1"),
            keyless(b"x1"),
            keyed("a", b"a2"),
            keyed("b", b"b1"),
            keyed("a", b"a3"),
            keyless(b"x2"),
        ])
        .await;
    let rows = place.pending().await;
    place
        .fail(&fences, &named(&rows, &["a2", "x1"]), LONG)
        .await;
    let mut left = payloads(&place.pending().await);
    left.sort();
    assert_eq!(left, ["a1", "b1", "x2"]);
    // What comes later waits as well.
    place.enqueue(&[keyed("a", b"a4"), keyed("b", b"b2")]).await;
    let mut left = payloads(&place.pending().await);
    left.sort();
    assert_eq!(left, ["a1", "b1", "b2", "x2"]);
}

pub(super) async fn a_hold_that_is_over_frees_the_row_and_its_key<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    place.enqueue(&[keyed("a", b"1"), keyed("a", b"2")]).await;
    let rows = place.pending().await;
    place.fail(&fences, &ids(&rows)[..1], Duration::ZERO).await;
    let rows = place.pending().await;
    assert_eq!(payloads(&rows), ["1", "2"]);
    assert_eq!(
        rows.iter().map(|row| row.attempts).collect::<Vec<_>>(),
        [1, 0]
    );
}

/// Whatever a reading takes together, it is of one instant.
pub(super) async fn a_hold_that_ends_during_a_reading_shows_no_successor_before_its_head<
    D: TestDatabase,
>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    place.enqueue(&[keyed("a", b"1"), keyed("a", b"2")]).await;
    let head = ids(&place.pending().await)[0];
    let mut ends = 0;
    while ends < 200 {
        let hold = Duration::from_micros(rand::random_range(1000..3000));
        place.fail(&fences, &[head], hold).await;
        loop {
            let rows = payloads(&place.pending().await);
            if rows.is_empty() {
                continue;
            }
            assert_eq!(rows, ["1", "2"], "after {ends} holds");
            ends += 1;
            break;
        }
    }
}

pub(super) async fn held_rows_do_not_fill_a_batch<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    // One lane for all, so that the fresh row is behind every held one.
    let mut held: Vec<Envelope> = Vec::new();
    for n in 0.. {
        let envelope = keyed(&format!("k{n}"), b"held");
        if envelope.slot().number() == 5 {
            held.push(envelope);
        }
        if held.len() == 60 {
            break;
        }
    }
    let fresh = keyed(
        (0..)
            .map(|n| format!("f{n}"))
            .find(|key| Slot::of_key(&key_of(key)).number() == 5)
            .unwrap()
            .as_str(),
        b"fresh",
    );
    place.enqueue(&held).await;
    let rows = place.pending().await;
    for _ in 0..7 {
        place.fail(&fences, &ids(&rows), LONG).await;
    }
    place.enqueue(&[fresh]).await;
    assert_eq!(payloads(&place.pending_at_most(50).await), ["fresh"]);
}

pub(super) async fn successors_of_held_rows_do_not_fill_a_batch<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let key = |text: &str| {
        (0..)
            .map(|n| format!("{text}{n}"))
            .find(|key| Slot::of_key(&key_of(key)).number() == 9)
            .unwrap()
    };
    let envelopes: Vec<Envelope> = (0..100).map(|_| keyed(&key("held"), b"waits")).collect();
    place.enqueue(&envelopes).await;
    let rows = place.pending().await;
    place.fail(&fences, &ids(&rows)[..1], LONG).await;
    place.enqueue(&[keyed(&key("fresh"), b"fresh")]).await;
    assert_eq!(payloads(&place.pending_at_most(50).await), ["fresh"]);
}

pub(super) async fn the_next_due_time_is_that_of_the_first_held_row<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    place.enqueue(&[keyed("a", b"1"), keyed("b", b"2")]).await;
    let rows = place.pending().await;
    let (a, b) = (rows[0].id, rows[1].id);
    let next_due = async |lanes: &[Slot]| {
        let mut session = place.begin().await;
        let due = place.store.next_due(&mut session, lanes).await.unwrap();
        session.commit().await.unwrap();
        due
    };
    assert_eq!(next_due(&[a.slot, b.slot]).await, None);
    place.fail(&fences, &[a], LONG * 2).await;
    place.fail(&fences, &[b], LONG).await;
    let within = |due: Option<Duration>, hold: Duration| {
        due.is_some_and(|due| due <= hold && due > hold - Duration::from_secs(300))
    };
    assert!(within(next_due(&[a.slot, b.slot]).await, LONG));
    assert!(within(next_due(&[a.slot]).await, LONG * 2));
    let third = Slot::all()
        .find(|slot| *slot != a.slot && *slot != b.slot)
        .unwrap();
    assert_eq!(next_due(&[third]).await, None);
    assert_eq!(next_due(&[]).await, None);
}
