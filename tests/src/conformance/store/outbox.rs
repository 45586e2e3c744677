//! The outbox: what goes in is what waits.

use std::time::Duration;

use posta::MessageId;
use posta::message::limits::VERSION_MAX;
use posta::message::{Envelope, Headers};
use posta::store::{Backlog, OutboxStore, Store, StoreErrorKind};
use uuid::Uuid;

pub(super) use super::given::fresh as start;
use super::given::{
    LONG, ODD_TEXTS, Place, ids, key_of, keyed, keyless, messages, named, odd_payloads, payloads,
    type_of, without_time,
};
use crate::harness::database::TestDatabase;

pub(super) async fn rows_come_in_the_order_of_insertion_whatever_their_ids<D: TestDatabase>(
    place: &Place<D>,
) {
    let descending = |from: u128, count: u128| -> Vec<Envelope> {
        (0..count)
            .map(|index| {
                let mut envelope = keyed("p1", format!("{from}-{index}").as_bytes());
                envelope.id = MessageId::from(Uuid::from_u128(from - index));
                envelope
            })
            .collect()
    };
    let first = descending(u128::MAX, 50);
    let second = descending(1000, 10);
    place.enqueue(&first).await;
    place.enqueue(&second).await;
    let rows = place.pending().await;
    let expected: Vec<MessageId> = first.iter().chain(&second).map(|row| row.id).collect();
    assert_eq!(
        messages(&rows).iter().map(|row| row.id).collect::<Vec<_>>(),
        expected
    );
    assert!(rows.is_sorted_by_key(|row| row.id.position));
}

pub(super) async fn inserting_nothing_writes_nothing<D: TestDatabase>(place: &Place<D>) {
    place.enqueue(&[]).await;
    assert_eq!(place.rows("outbox").await, 0);
}

pub(super) async fn an_envelope_comes_back_as_it_was<D: TestDatabase>(place: &Place<D>) {
    let mut headers = Headers::default();
    headers
        .set(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        .unwrap();
    headers.set("empty", "").unwrap();
    headers.set("x".repeat(255), "y".repeat(1000)).unwrap();
    let large = Envelope::builder(type_of(&"t".repeat(252)), vec![1, 2, 3])
        .version(VERSION_MAX)
        .key(Some(key_of(&"é".repeat(127))))
        .headers(headers)
        .content_type("c".repeat(255))
        .build()
        .unwrap();
    let mut small = Envelope::builder(type_of("t"), Vec::new())
        .content_type("")
        .build()
        .unwrap();
    small.key = Some(key_of(" "));
    place.enqueue(&[large.clone(), small.clone()]).await;
    let rows = place.pending().await;
    let found = messages(&rows);
    assert!(found.iter().all(|envelope| envelope.enqueued_at.is_some()));
    let found: Vec<Envelope> = found.into_iter().map(without_time).collect();
    assert_eq!(found, [large.clone(), small]);
    assert_eq!((rows[0].attempts, rows[0].id.slot), (0, large.slot()));
}

pub(super) async fn payloads_are_equal_byte_for_byte<D: TestDatabase>(place: &Place<D>) {
    let payloads = odd_payloads();
    let envelopes: Vec<Envelope> = payloads
        .iter()
        .map(|payload| keyed("bytes", payload))
        .collect();
    place.enqueue(&envelopes).await;
    let found = messages(&place.pending().await);
    assert_eq!(found.len(), payloads.len());
    for (envelope, payload) in found.iter().zip(&payloads) {
        assert!(
            envelope.payload == *payload,
            "{} bytes came back otherwise",
            payload.len()
        );
    }
}

pub(super) async fn odd_texts_come_back_in_every_field<D: TestDatabase>(place: &Place<D>) {
    let envelopes: Vec<Envelope> = ODD_TEXTS
        .iter()
        .map(|text| {
            let mut headers = Headers::default();
            headers.set("odd", *text).unwrap();
            headers.set("na'me\"\\u0000", "v").unwrap();
            let name: String = text.chars().filter(char::is_ascii_graphic).collect();
            let name = name.replace(['*', '#'], "-");
            Envelope::builder(type_of(&name), text.as_bytes().to_vec())
                .key(Some(key_of(text)))
                .headers(headers)
                .content_type(*text)
                .build()
                .unwrap()
        })
        .collect();
    place.enqueue(&envelopes).await;
    let mut found = place.pending().await;
    found.sort_by_key(|row| row.id.position);
    let found: Vec<Envelope> = messages(&found).into_iter().map(without_time).collect();
    assert_eq!(found, envelopes);
}

pub(super) async fn what_was_rolled_back_was_never_there<D: TestDatabase>(place: &Place<D>) {
    let mut session = place.begin().await;
    let envelopes = [keyless(b"1"), keyless(b"2")];
    D::insert_outbox(&mut session, place.store.tables(), &envelopes)
        .await
        .unwrap();
    session.rollback().await;
    assert_eq!(place.rows("outbox").await, 0);
    place.enqueue(&envelopes).await;
    assert_eq!(place.rows("outbox").await, 2);
}

pub(super) async fn an_insert_that_is_refused_leaves_nothing<D: TestDatabase>(place: &Place<D>) {
    let twice = keyless(b"twice");
    let envelopes = [keyless(b"other"), twice.clone(), twice];
    let mut session = place.begin().await;
    let refused = D::insert_outbox(&mut session, place.store.tables(), &envelopes).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Rejected);
    session.rollback().await;
    assert_eq!(place.rows("outbox").await, 0);
}

pub(super) async fn a_row_that_commits_late_with_a_lower_position_is_found<D: TestDatabase>(
    place: &Place<D>,
) {
    let late = keyless(b"late");
    let early = keyless(b"early");
    if !D::CONCURRENT_WRITERS {
        // The second would wait for the first: positions are in the order of commits.
        place.enqueue(&[late, early]).await;
        assert_eq!(payloads(&place.pending().await), ["late", "early"]);
        return;
    }
    let fences = place.own_lanes().await;
    let mut slow = place.begin().await;
    D::insert_outbox(&mut slow, place.store.tables(), &[late])
        .await
        .unwrap();
    place.enqueue(&[early]).await;
    let first = place.pending().await;
    assert_eq!(payloads(&first), ["early"]);
    place.settle(&fences, &ids(&first)).await;
    slow.commit().await.unwrap();
    let second = place.pending().await;
    assert_eq!(payloads(&second), ["late"]);
    assert!(second[0].id.position < first[0].id.position);
    place.settle(&fences, &ids(&second)).await;
    assert_eq!(place.rows("outbox").await, 0);
}

pub(super) async fn the_backlog_counts_rows_and_holds_and_ages<D: TestDatabase>(place: &Place<D>) {
    let backlog = async || {
        let mut session = place.begin().await;
        let backlog = place.store.backlog(&mut session).await.unwrap();
        session.commit().await.unwrap();
        backlog
    };
    assert_eq!(backlog().await, Backlog::default());
    let fences = place.own_lanes().await;
    place
        .enqueue(&[keyed("a", b"1"), keyed("a", b"2"), keyless(b"3")])
        .await;
    let rows = place.pending().await;
    place.fail(&fences, &named(&rows, &["1"]), LONG).await;
    let first = backlog().await;
    assert_eq!((first.rows, first.held), (3, 1));
    let second = backlog().await;
    assert!(second.oldest >= first.oldest && second.oldest < Duration::from_secs(300));
    place.settle(&fences, &named(&rows, &["2"])).await;
    assert_eq!(backlog().await.rows, 2);
}
