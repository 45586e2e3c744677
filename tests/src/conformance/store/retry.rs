//! The retry table: what failed, and what waits behind it.

use std::ops::RangeInclusive;
use std::time::Duration;

use posta::message::Envelope;
use posta::store::{HeldRow, RetryStore};

pub(super) use super::given::fresh as start;
use super::given::{
    LONG, ODD_TEXTS, Place, failed, key_of, keyed, keyless, odd_payloads, successor, text_of,
};
use super::letters::{dead_and_parked, place_of, texts};
use super::postponed::postpone;
use super::released::release;
use crate::harness::database::TestDatabase;

const ALL: RangeInclusive<u8> = 0..=63;
const NOW: Duration = Duration::ZERO;

pub(super) async fn the_first_of_a_key_is_due_and_its_successors_wait<D: TestDatabase>(
    place: &Place<D>,
) {
    let message = keyed("a", b"a1");
    place
        .hold(
            "c",
            &[
                failed(&message, NOW),
                successor(&keyed("a", b"a2")),
                failed(&keyed("b", b"b1"), NOW),
                failed(&keyed("a", b"a3"), LONG),
                // Its own time has come, but it is not the first of its key.
                failed(&keyed("b", b"b2"), NOW),
            ],
        )
        .await;
    let due = due(place, "c", ALL, 100).await;
    assert_eq!(texts(&due), ["a1", "b1"]);
    assert_eq!((due[0].attempts, due[0].envelope.id), (1, message.id));
    assert_eq!(due[0].unhandled_for, None);
}

pub(super) async fn a_message_without_a_key_waits_for_nobody<D: TestDatabase>(place: &Place<D>) {
    place
        .hold(
            "c",
            &[
                failed(&keyless(b"later"), LONG),
                failed(&keyless(b"1"), NOW),
                failed(&keyless(b"2"), NOW),
            ],
        )
        .await;
    assert_eq!(texts(&due(place, "c", ALL, 100).await), ["1", "2"]);
}

pub(super) async fn nothing_is_due_before_its_time<D: TestDatabase>(place: &Place<D>) {
    assert!(due(place, "c", ALL, 100).await.is_empty());
    let later = [failed(&keyless(b""), LONG), failed(&keyed("k", b""), LONG)];
    place.hold("c", &later).await;
    place.hold("c", &[successor(&keyed("k", b""))]).await;
    assert!(due(place, "c", ALL, 100).await.is_empty());
    place
        .hold("other", &[failed(&keyed("k", b"of another"), NOW)])
        .await;
    assert!(due(place, "c", ALL, 100).await.is_empty());
    assert_eq!(texts(&due(place, "other", ALL, 100).await), ["of another"]);
}

pub(super) async fn due_messages_come_oldest_first_by_slot_and_limit<D: TestDatabase>(
    place: &Place<D>,
) {
    let envelopes: Vec<Envelope> = (0..100)
        .map(|n| {
            let payload = n.to_string();
            let key = format!("k{n}");
            if n % 2 == 0 {
                keyed(&key, payload.as_bytes())
            } else {
                keyless(payload.as_bytes())
            }
        })
        .collect();
    let holds: Vec<_> = envelopes
        .iter()
        .map(|envelope| failed(envelope, NOW))
        .collect();
    place.hold("c", &holds).await;
    for slots in [0..=63, 0..=20, 21..=63, 40..=40] {
        let expected: Vec<String> = envelopes
            .iter()
            .filter(|envelope| slots.contains(&envelope.slot().number()))
            .map(text_of)
            .collect();
        for limit in [0, 1, 10, 1000] {
            let found = texts(&due(place, "c", slots.clone(), limit).await);
            assert_eq!(
                found,
                expected[..limit.min(expected.len())],
                "{slots:?} {limit}"
            );
        }
    }
}

pub(super) async fn the_earliest_due_come_first_where_there_are_more_than_the_limit<
    D: TestDatabase,
>(
    place: &Place<D>,
) {
    let (later, earlier) = (keyless(b"later"), keyless(b"earlier"));
    let soon = Duration::from_millis(20);
    place
        .hold("c", &[failed(&later, soon), failed(&earlier, NOW)])
        .await;
    while due(place, "c", ALL, 10).await.len() < 2 {}
    assert_eq!(texts(&due(place, "c", ALL, 1).await), ["earlier"]);
    // Among what is taken, the order is that of arrival.
    assert_eq!(texts(&due(place, "c", ALL, 2).await), ["later", "earlier"]);
}

/// The walk that finds it is long, and is not made again at once if it finds nothing.
pub(super) async fn a_key_without_its_first_message_is_found_among_many<D: TestDatabase>(
    place: &Place<D>,
) {
    let holds: Vec<_> = (0..1_100)
        .flat_map(|n| {
            let key = format!("k{n}");
            let head = keyed(&key, format!("head {n}").as_bytes());
            let next = keyed(&key, format!("next {n}").as_bytes());
            [failed(&head, LONG), successor(&next)]
        })
        .collect();
    place.hold("c", &holds).await;
    let table = place.table("retry");
    place
        .run(&format!(
            "DELETE FROM {table} WHERE ordering_key = 'k7' AND due_at IS NOT NULL"
        ))
        .await;
    assert_eq!(place.next_retry().await, Some(NOW));
    assert_eq!(texts(&due(place, "c", ALL, 10).await), ["next 7"]);
}

pub(super) async fn waiting_messages_do_not_fill_a_batch<D: TestDatabase>(place: &Place<D>) {
    let mut holds = vec![failed(&keyed("slow", b"head"), LONG)];
    holds.extend((0..60).map(|_| successor(&keyed("slow", b"waits"))));
    holds.extend((0..60).map(|_| failed(&keyless(b"later"), LONG)));
    holds.push(failed(&keyed("quick", b"due"), NOW));
    place.hold("c", &holds).await;
    assert_eq!(texts(&due(place, "c", ALL, 50).await), ["due"]);
}

pub(super) async fn a_held_message_is_the_one_that_came<D: TestDatabase>(place: &Place<D>) {
    // Times come from a database: of its own outbox, or of the sender's.
    place.enqueue(&[keyless(b"")]).await;
    let enqueued_at = place.pending().await[0]
        .message
        .as_ref()
        .unwrap()
        .enqueued_at
        // To the microsecond: a sender's clock can be finer than this database's.
        .map(|at| at + Duration::from_micros(7));
    let mut envelopes: Vec<Envelope> = odd_payloads()
        .iter()
        .map(|payload| keyless(payload))
        .collect();
    envelopes.extend(ODD_TEXTS.map(|text| {
        let mut envelope = keyed(text, text.as_bytes());
        envelope.headers.set("odd", text).unwrap();
        envelope.content_type = text.to_owned();
        envelope.version = 9;
        envelope.enqueued_at = enqueued_at;
        envelope
    }));
    let holds: Vec<_> = envelopes
        .iter()
        .map(|envelope| failed(envelope, NOW))
        .collect();
    place.hold("c", &holds).await;
    let due = due(place, "c", ALL, 1000).await;
    assert_eq!(due.len(), envelopes.len());
    for (row, envelope) in due.iter().zip(&envelopes) {
        assert!(
            row.envelope == *envelope,
            "came back otherwise: {:?}",
            envelope.key
        );
    }
}

/// One that comes again after the inbox has forgotten it changes nothing, and nothing else is lost
/// for it.
pub(super) async fn a_message_is_held_once_by_a_consumer<D: TestDatabase>(place: &Place<D>) {
    let (first, second) = (keyed("k", b"1"), keyed("k", b"2"));
    place.hold("c", &[failed(&first, LONG)]).await;
    place.hold("shipping", &[failed(&first, NOW)]).await;
    place
        .hold("c", &[successor(&first), successor(&second)])
        .await;
    let rows = of_key(place, "k", 10).await;
    let found: Vec<_> = rows
        .iter()
        .map(|row| (row.envelope.id, row.attempts))
        .collect();
    assert_eq!(found, [(first.id, 1), (second.id, 0)]);
    assert_eq!(due(place, "shipping", ALL, 10).await.len(), 1);
}

pub(super) async fn the_next_retry_is_that_of_the_first_due<D: TestDatabase>(place: &Place<D>) {
    let next = async |slots: RangeInclusive<u8>| {
        let mut session = place.begin().await;
        let next = place
            .store
            .next_retry(&mut session, "c", slots)
            .await
            .unwrap();
        session.commit().await.unwrap();
        next
    };
    assert_eq!(next(ALL).await, None);
    let (a, b) = (keyed("a", b""), keyless(b""));
    place.hold("other", &[failed(&a, NOW)]).await;
    assert_eq!(next(ALL).await, None);
    place
        .hold("c", &[failed(&a, LONG * 2), successor(&keyed("a", b""))])
        .await;
    let within = |due: Option<Duration>, delay: Duration| {
        due.is_some_and(|due| due <= delay && due > delay - Duration::from_secs(300))
    };
    let slot = a.slot().number();
    assert!(
        within(next(ALL).await, LONG * 2),
        "successors have no time of their own"
    );
    place.hold("c", &[failed(&b, LONG)]).await;
    assert!(within(next(ALL).await, LONG));
    if b.slot() != a.slot() {
        assert!(within(next(slot..=slot).await, LONG * 2));
    }
    place.hold("c", &[failed(&keyed("due", b""), NOW)]).await;
    assert_eq!(next(ALL).await, Some(Duration::ZERO));
}

/// An operator, or a defect, removed the head: its successors must not wait for ever.
pub(super) async fn a_key_whose_first_message_waits_for_nobody_is_due<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    place
        .hold(
            "c",
            &[successor(&keyed("k", b"1")), successor(&keyed("k", b"2"))],
        )
        .await;
    place
        .hold(
            "c",
            &[
                failed(&keyed("l", b"head"), LONG),
                successor(&keyed("l", b"3")),
            ],
        )
        .await;
    let mut session = place.begin().await;
    let next = place
        .store
        .next_retry(&mut session, "c", ALL)
        .await
        .unwrap();
    session.commit().await.unwrap();
    assert_eq!(next, Some(Duration::ZERO));
    let rows = due(place, "c", ALL, 100).await;
    assert_eq!(texts(&rows), ["1"]);
    let table = place.table("retry");
    place
        .run(&format!("DELETE FROM {table} WHERE attempts = 1"))
        .await;
    let rows = due(place, "c", ALL, 100).await;
    assert_eq!(texts(&rows), ["1", "3"]);
    assert!(release(place, &fence, rows[0].position).await);
    assert!(postpone(place, &fence, rows[1].position, "failed", LONG).await);
    assert_eq!(texts(&due(place, "c", ALL, 100).await), ["2"]);
}

pub(super) async fn held_messages_and_keys_are_counted<D: TestDatabase>(place: &Place<D>) {
    assert_eq!(held(place, "c").await, (0, 0));
    place
        .hold(
            "c",
            &[
                failed(&keyed("a", b""), LONG),
                successor(&keyed("a", b"")),
                failed(&keyed("b", b""), NOW),
                failed(&keyless(b""), NOW),
            ],
        )
        .await;
    place.hold("other", &[failed(&keyed("x", b""), LONG)]).await;
    assert_eq!(held(place, "c").await, (4, 2));
}

pub(super) async fn a_keys_messages_are_counted_no_further_than_asked<D: TestDatabase>(
    place: &Place<D>,
) {
    let count = async |key: &str, limit: usize| {
        let key = key_of(key);
        place
            .done(async |store, session| store.held_count(session, "c", &key, limit).await)
            .await
    };
    assert_eq!(count("k", 10).await, 0);
    let head = keyed("k", b"0");
    let letter = place.bury(&[dead_and_parked(&head)]).await[0];
    let mut holds = vec![place_of(&head, letter)];
    holds.extend((0..5).map(|_| successor(&keyed("k", b""))));
    holds.push(failed(&keyed("other", b""), NOW));
    place.hold("c", &holds).await;
    place.hold("other", &[failed(&keyed("k", b""), NOW)]).await;
    for (limit, expected) in [(0, 0), (1, 1), (4, 4), (5, 5), (6, 5), (usize::MAX, 5)] {
        assert_eq!(count("k", limit).await, expected, "{limit}");
    }
}

pub(super) async fn the_messages_of_a_key_come_in_order<D: TestDatabase>(place: &Place<D>) {
    let mut holds = vec![failed(&keyed("k", b"0"), LONG)];
    holds.extend((1..5).map(|n: u8| successor(&keyed("k", n.to_string().as_bytes()))));
    holds.insert(2, failed(&keyed("other", b"x"), LONG));
    place.hold("c", &holds).await;
    place
        .hold("another", &[failed(&keyed("k", b"y"), LONG)])
        .await;
    let rows = of_key(place, "k", 100).await;
    assert_eq!(texts(&rows), ["0", "1", "2", "3", "4"]);
    assert!(rows.is_sorted_by_key(|row| row.position));
    assert_eq!(texts(&of_key(place, "k", 2).await), ["0", "1"]);
    assert!(of_key(place, "none", 2).await.is_empty());
}

pub(super) async fn a_hold_that_is_rolled_back_never_was<D: TestDatabase>(place: &Place<D>) {
    let mut session = place.begin().await;
    place
        .store
        .hold(&mut session, "c", &[failed(&keyless(b""), NOW)])
        .await
        .unwrap();
    place.store.hold(&mut session, "c", &[]).await.unwrap();
    session.rollback().await;
    assert_eq!(held(place, "c").await, (0, 0));
}

pub(super) async fn due<D: TestDatabase>(
    place: &Place<D>,
    consumer: &str,
    slots: RangeInclusive<u8>,
    limit: usize,
) -> Vec<HeldRow> {
    let mut session = place.begin().await;
    let rows = place
        .store
        .due(&mut session, consumer, slots, limit)
        .await
        .unwrap();
    session.commit().await.unwrap();
    rows
}

pub(super) async fn held<D: TestDatabase>(place: &Place<D>, consumer: &str) -> (u64, u64) {
    let mut session = place.begin().await;
    let held = place.store.held(&mut session, consumer).await.unwrap();
    session.commit().await.unwrap();
    held
}

pub(super) async fn of_key<D: TestDatabase>(
    place: &Place<D>,
    key: &str,
    limit: usize,
) -> Vec<HeldRow> {
    let mut session = place.begin().await;
    let rows = place
        .store
        .held_of_key(&mut session, "c", &key_of(key), limit)
        .await
        .unwrap();
    session.commit().await.unwrap();
    rows
}
