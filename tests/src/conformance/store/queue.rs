//! The database broker's queues.

use std::ops::RangeInclusive;

use posta::message::{Envelope, Headers};
use posta::store::{QueueRow, QueueStore, RowId};

pub(super) use super::given::fresh as start;
use super::given::{Place, ids, key_of, keyed, keyless, odd_payloads, text_of, type_of};
use crate::harness::database::TestDatabase;

const ALL: RangeInclusive<u8> = 0..=63;

pub(super) async fn a_subscription_adds_to_the_one_before<D: TestDatabase>(place: &Place<D>) {
    let rows = enqueue_types(place, &["a", "b", "c"]).await;
    subscribe(place, "c", &["a", "b"]).await;
    assert_eq!(route(place, &rows).await, rows[..2]);
    // The next version, which knows another type, beside the one that is still there.
    subscribe(place, "c", &["b", "c", "c"]).await;
    subscribe(place, "c", &["a", "b"]).await;
    subscribe(place, "c", &[]).await;
    assert_eq!(route(place, &rows).await, rows);
    assert_eq!(depth(place, "c", ALL).await, 5);
}

pub(super) async fn a_subscription_is_its_consumers_own<D: TestDatabase>(place: &Place<D>) {
    subscribe(place, "billing", &["a"]).await;
    subscribe(place, "shipping", &["b"]).await;
    subscribe(place, "shipping", &["b"]).await;
    let rows = enqueue_types(place, &["a", "b"]).await;
    assert_eq!(route(place, &rows).await, rows);
    assert_eq!(queued_types(place, "billing").await, ["a"]);
    assert_eq!(queued_types(place, "shipping").await, ["b"]);
}

pub(super) async fn rows_go_to_each_consumer_that_takes_their_type<D: TestDatabase>(
    place: &Place<D>,
) {
    subscribe(place, "billing", &["a", "b"]).await;
    subscribe(place, "shipping", &["a"]).await;
    let rows = enqueue_types(place, &["a", "b", "a"]).await;
    assert_eq!(route(place, &rows).await, rows);
    assert_eq!(queued_types(place, "billing").await, ["a", "b", "a"]);
    assert_eq!(queued_types(place, "shipping").await, ["a", "a"]);
    assert_eq!(queued_types(place, "nobody").await, [""; 0]);
}

pub(super) async fn rows_that_nobody_takes_are_not_reported_as_routed<D: TestDatabase>(
    place: &Place<D>,
) {
    subscribe(place, "c", &["a"]).await;
    let rows = enqueue_types(place, &["unroutable", "a"]).await;
    assert_eq!(route(place, &rows).await, rows[1..]);
    let gone = RowId {
        position: rows[1].position + 1000,
        ..rows[1]
    };
    assert_eq!(route(place, &[gone]).await, []);
    assert_eq!(route(place, &[]).await, []);
    assert_eq!(depth(place, "c", ALL).await, 1);
}

pub(super) async fn rows_are_queued_in_the_order_given<D: TestDatabase>(place: &Place<D>) {
    subscribe(place, "c", &["order.placed"]).await;
    let envelopes: Vec<Envelope> = (0..30)
        .map(|n| keyed(&format!("k{}", n % 3), n.to_string().as_bytes()))
        .collect();
    place.enqueue(&envelopes).await;
    let mut rows = ids(&place.pending().await);
    rows.sort_by_key(|row| row.position);
    rows.reverse();
    let routed = route(place, &rows).await;
    assert_eq!(routed.len(), 30);
    let found: Vec<String> = queued(place, "c", ALL, 100)
        .await
        .iter()
        .map(payload)
        .collect();
    let expected: Vec<String> = (0..30).rev().map(|n| n.to_string()).collect();
    assert_eq!(found, expected);
}

pub(super) async fn a_queued_message_is_the_one_that_was_enqueued<D: TestDatabase>(
    place: &Place<D>,
) {
    subscribe(place, "c", &["order.placed"]).await;
    let mut headers = Headers::default();
    headers
        .set(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        .unwrap();
    headers.set("odd", "\\u0000 👩‍👩‍👧‍👦 שלום").unwrap();
    let mut envelopes: Vec<Envelope> = odd_payloads()
        .iter()
        .map(|payload| keyed("👩‍👩‍👧‍👦 שלום", payload))
        .collect();
    for envelope in &mut envelopes {
        envelope.headers = headers.clone();
        envelope.version = 7;
    }
    place.enqueue(&envelopes).await;
    let rows = place.pending().await;
    route(place, &ids(&rows)).await;
    let queued = queued(place, "c", ALL, 100).await;
    assert_eq!(queued.len(), rows.len());
    for (queued, row) in queued.iter().zip(&rows) {
        assert!(
            queued.message == row.message,
            "the time it was enqueued is the same, too"
        );
    }
}

pub(super) async fn malformed_rows_are_queued_with_their_bytes<D: TestDatabase>(place: &Place<D>) {
    let (outbox, bytes) = (place.table("outbox"), D::bytes(b"\x00\xff"));
    subscribe(place, "c", &["a.b"]).await;
    place
        .run(&format!(
            "INSERT INTO {outbox} (message_type, payload, headers) VALUES ('a.b', {bytes}, '{{\"a blank\": \"v\"}}')"
        ))
        .await;
    let rows = place.pending().await;
    route(place, &ids(&rows)).await;
    let queued = queued(place, "c", ALL, 100).await;
    let malformed = queued[0]
        .message
        .as_ref()
        .expect_err("a header whose name has a blank");
    assert_eq!(malformed.raw.payload.as_ref(), b"\x00\xff");
}

pub(super) async fn queued_messages_come_by_slot_and_limit_and_stay<D: TestDatabase>(
    place: &Place<D>,
) {
    subscribe(place, "c", &["order.placed"]).await;
    let envelopes: Vec<Envelope> = (0..200).map(|n| keyed(&format!("k{n}"), b"")).collect();
    place.enqueue(&envelopes).await;
    let mut rows = ids(&place.pending().await);
    rows.sort_by_key(|row| row.position);
    route(place, &rows).await;
    let all = queued(place, "c", ALL, 1000).await;
    assert!(all.len() == 200 && all.is_sorted_by_key(|row| row.position));
    for slots in [0..=63, 10..=20, 63..=63, 5..=5] {
        let of_slots: Vec<i64> = all
            .iter()
            .filter(|row| slots.contains(&row.message.as_ref().unwrap().slot().number()))
            .map(|row| row.position)
            .collect();
        for limit in [0, 1, 10, 200] {
            let found: Vec<i64> = queued(place, "c", slots.clone(), limit)
                .await
                .iter()
                .map(|row| row.position)
                .collect();
            assert_eq!(
                found,
                of_slots[..limit.min(of_slots.len())],
                "{slots:?} {limit}"
            );
        }
    }
}

pub(super) async fn messages_are_taken_out_once<D: TestDatabase>(place: &Place<D>) {
    subscribe(place, "billing", &["a"]).await;
    subscribe(place, "shipping", &["a"]).await;
    let rows = enqueue_types(place, &["a", "a", "a"]).await;
    route(place, &rows).await;
    let positions: Vec<i64> = queued(place, "billing", ALL, 2)
        .await
        .iter()
        .map(|row| row.position)
        .collect();
    assert_eq!(unqueue(place, &positions).await, 2);
    assert_eq!(unqueue(place, &positions).await, 0);
    assert_eq!(unqueue(place, &[]).await, 0);
    assert_eq!(depth(place, "billing", ALL).await, 1);
    assert_eq!(depth(place, "shipping", ALL).await, 3);
}

pub(super) async fn the_depth_counts_a_consumers_slots<D: TestDatabase>(place: &Place<D>) {
    subscribe(place, "c", &["order.placed"]).await;
    assert_eq!(depth(place, "c", ALL).await, 0);
    let envelopes: Vec<Envelope> = (0..100).map(|n| keyed(&format!("k{n}"), b"")).collect();
    place.enqueue(&envelopes).await;
    route(place, &ids(&place.pending().await)).await;
    let low = envelopes
        .iter()
        .filter(|envelope| envelope.slot().number() < 20)
        .count() as u64;
    assert_eq!(depth(place, "c", 0..=19).await, low);
    assert_eq!(depth(place, "c", 20..=63).await, 100 - low);
}

pub(super) async fn routing_that_is_rolled_back_never_was<D: TestDatabase>(place: &Place<D>) {
    subscribe(place, "c", &["order.placed"]).await;
    place.enqueue(&[keyless(b"")]).await;
    let rows = ids(&place.pending().await);
    let mut session = place.begin().await;
    assert_eq!(place.store.route(&mut session, &rows).await.unwrap(), rows);
    session.rollback().await;
    assert_eq!(depth(place, "c", ALL).await, 0);
}

fn payload(row: &QueueRow) -> String {
    text_of(row.message.as_ref().expect("a well-formed row"))
}

/// Enqueues a message of each type under one key; their ids in order.
async fn enqueue_types<D: TestDatabase>(place: &Place<D>, types: &[&str]) -> Vec<RowId> {
    let envelopes: Vec<Envelope> = types
        .iter()
        .map(|name| {
            let message_type = type_of(name);
            Envelope::builder(message_type, Vec::new())
                .key(Some(key_of("k")))
                .build()
                .unwrap()
        })
        .collect();
    place.enqueue(&envelopes).await;
    ids(&place.pending().await)
}

async fn subscribe<D: TestDatabase>(place: &Place<D>, consumer: &str, types: &[&str]) {
    let types: Vec<_> = types.iter().map(|name| type_of(name)).collect();
    let mut session = place.begin().await;
    place
        .store
        .subscribe(&mut session, consumer, &types)
        .await
        .unwrap();
    session.commit().await.unwrap();
}

async fn route<D: TestDatabase>(place: &Place<D>, rows: &[RowId]) -> Vec<RowId> {
    let mut session = place.begin().await;
    let mut routed = place.store.route(&mut session, rows).await.unwrap();
    session.commit().await.unwrap();
    // The contract says which, not in which order.
    routed.sort_by_key(|row| rows.iter().position(|given| given == row));
    routed
}

async fn queued<D: TestDatabase>(
    place: &Place<D>,
    consumer: &str,
    slots: RangeInclusive<u8>,
    limit: usize,
) -> Vec<QueueRow> {
    let mut session = place.begin().await;
    let rows = place
        .store
        .queued(&mut session, consumer, slots, limit)
        .await
        .unwrap();
    session.commit().await.unwrap();
    rows
}

async fn queued_types<D: TestDatabase>(place: &Place<D>, consumer: &str) -> Vec<String> {
    let rows = queued(place, consumer, ALL, 100).await;
    rows.iter()
        .map(|row| row.message.as_ref().unwrap().message_type.to_string())
        .collect()
}

async fn unqueue<D: TestDatabase>(place: &Place<D>, positions: &[i64]) -> usize {
    let mut session = place.begin().await;
    let gone = place.store.unqueue(&mut session, positions).await.unwrap();
    session.commit().await.unwrap();
    gone
}

async fn depth<D: TestDatabase>(
    place: &Place<D>,
    consumer: &str,
    slots: RangeInclusive<u8>,
) -> u64 {
    let mut session = place.begin().await;
    let depth = place
        .store
        .queue_depth(&mut session, consumer, slots)
        .await
        .unwrap();
    session.commit().await.unwrap();
    depth
}
