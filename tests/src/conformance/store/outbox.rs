//! The outbox: what waits, what left it.

use std::collections::HashSet;
use std::time::Duration;

use posta::message::limits::VERSION_MAX;
use posta::message::{Envelope, Headers};
use posta::store::{
    Backlog, FailedRow, Fence, OutboxStore, Resource, RowId, Session, Store, StoreErrorKind,
};
use posta::{MessageId, Slot};
use uuid::Uuid;

pub(super) use super::given::fresh as start;
use super::given::{
    LONG, ODD_TEXTS, Place, ids, key_of, keyed, keyless, messages, odd_payloads, payloads, type_of,
    without_time,
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
    settle(place, &fences, &ids(&first)).await;
    slow.commit().await.unwrap();
    let second = place.pending().await;
    assert_eq!(payloads(&second), ["late"]);
    assert!(second[0].id.position < first[0].id.position);
    settle(place, &fences, &ids(&second)).await;
    assert_eq!(place.rows("outbox").await, 0);
}

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
    fail(place, &fences, &named(&rows, &["a2", "x1"]), LONG).await;
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
    fail(place, &fences, &ids(&rows)[..1], Duration::ZERO).await;
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
        fail(place, &fences, &[head], hold).await;
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
        fail(place, &fences, &ids(&rows), LONG).await;
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
    fail(place, &fences, &ids(&rows)[..1], LONG).await;
    place.enqueue(&[keyed(&key("fresh"), b"fresh")]).await;
    assert_eq!(payloads(&place.pending_at_most(50).await), ["fresh"]);
}

pub(super) async fn a_malformed_row_comes_alone_with_its_bytes<D: TestDatabase>(place: &Place<D>) {
    let outbox = place.table("outbox");
    let bytes = D::bytes(b"\x00\xff bytes");
    place.enqueue(&[keyed("k", b"before")]).await;
    let long = "c".repeat(256);
    let spoilt = [
        (
            format!("(message_type, payload, ordering_key) VALUES ('has a blank', {bytes}, 'k1')"),
            "message type",
        ),
        (
            format!("(message_type, payload, ordering_key) VALUES ('has.*', {bytes}, 'k2')"),
            "message type",
        ),
        (
            format!(
                "(message_type, payload, headers) VALUES ('a.b', {bytes}, '{{\"a b\": \"v\"}}')"
            ),
            "header",
        ),
        (
            format!("(message_type, payload, content_type) VALUES ('a.b', {bytes}, '{long}')"),
            "content type",
        ),
    ];
    for (row, _) in &spoilt {
        place.run(&format!("INSERT INTO {outbox} {row}")).await;
    }
    place.enqueue(&[keyed("k", b"after")]).await;
    let mut rows = place.pending().await;
    rows.sort_by_key(|row| row.id.position);
    assert_eq!(rows.len(), spoilt.len() + 2);
    assert_eq!(
        payloads(&[rows.remove(0), rows.pop().unwrap()]),
        ["before", "after"]
    );
    for (row, (sql, field)) in rows.iter().zip(&spoilt) {
        let malformed = row.message.as_ref().expect_err(sql);
        assert!(
            malformed.reason.contains(field),
            "{sql}: {}",
            malformed.reason
        );
        assert_eq!(malformed.raw.payload.as_ref(), b"\x00\xff bytes");
        assert!(malformed.raw.id.is_some() && malformed.raw.message_type.is_some());
    }
}

pub(super) async fn a_header_that_is_no_text_is_malformed_and_kept_as_its_json<D: TestDatabase>(
    place: &Place<D>,
) {
    let (outbox, bytes) = (place.table("outbox"), D::bytes(b"{}"));
    place
        .run(&format!(
            "INSERT INTO {outbox} (message_type, payload, headers)
             VALUES ('a.b', {bytes}, '{{\"number\":1,\"yes\":true,\"list\":[1],\"text\":\"t\"}}')"
        ))
        .await;
    let rows = place.pending().await;
    let malformed = rows[0]
        .message
        .as_ref()
        .expect_err("a header that is no text");
    assert!(malformed.reason.contains("header"), "{}", malformed.reason);
    let headers: Vec<(&str, &str)> = malformed
        .raw
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        headers,
        [
            ("list", "[1]"),
            ("number", "1"),
            ("text", "t"),
            ("yes", "true")
        ]
    );
}

pub(super) async fn an_unknown_type_is_carried_like_any_other<D: TestDatabase>(place: &Place<D>) {
    let outbox = place.table("outbox");
    let bytes = D::bytes(b"not even JSON");
    place
        .run(&format!(
            "INSERT INTO {outbox} (message_type, payload) VALUES ('gone.Type', {bytes})"
        ))
        .await;
    let rows = place.pending().await;
    assert_eq!(payloads(&rows), ["not even JSON"]);
    assert_eq!(messages(&rows)[0].message_type.as_str(), "gone.Type");
}

pub(super) async fn plain_sql_needs_a_type_and_a_payload_only<D: TestDatabase>(place: &Place<D>) {
    let outbox = place.table("outbox");
    let bytes = D::bytes(b"{}");
    for _ in 0..3 {
        place
            .run(&format!(
                "INSERT INTO {outbox} (message_type, payload) VALUES ('a.b', {bytes})"
            ))
            .await;
    }
    let rows = place.pending().await;
    let found = messages(&rows);
    assert_eq!(found.len(), 3);
    for (envelope, row) in found.iter().zip(&rows) {
        assert_eq!(
            (envelope.version, envelope.content_type.as_str()),
            (1, "application/json")
        );
        assert_eq!(
            (envelope.key.clone(), envelope.headers.is_empty()),
            (None, true)
        );
        assert!(envelope.enqueued_at.is_some());
        assert_eq!(envelope.id.as_uuid().get_version_num(), 4);
        assert_eq!(row.id.slot, envelope.slot());
    }
    assert_eq!(
        found
            .iter()
            .map(|envelope| envelope.id)
            .collect::<HashSet<_>>()
            .len(),
        3
    );
}

pub(super) async fn plain_sql_rows_keep_the_order_of_their_key<D: TestDatabase>(place: &Place<D>) {
    let outbox = place.table("outbox");
    for n in 0..6 {
        let payload = format!("{n}");
        if n % 2 == 0 {
            let bytes = D::bytes(payload.as_bytes());
            let sql = format!(
                "INSERT INTO {outbox} (message_type, payload, ordering_key) VALUES ('a.b', {bytes}, 'ключ')"
            );
            place.run(&sql).await;
        } else {
            place.enqueue(&[keyed("ключ", payload.as_bytes())]).await;
        }
    }
    let rows = place.pending().await;
    assert_eq!(payloads(&rows), ["0", "1", "2", "3", "4", "5"]);
    assert!(
        rows.iter()
            .all(|row| row.id.slot == Slot::of_key(&key_of("ключ")))
    );
}

pub(super) async fn adoption_leaves_no_row_without_a_slot<D: TestDatabase>(place: &Place<D>) {
    let outbox = place.table("outbox");
    let bytes = D::bytes(b"{}");
    for _ in 0..5 {
        place
            .run(&format!(
                "INSERT INTO {outbox} (message_type, payload) VALUES ('a.b', {bytes})"
            ))
            .await;
    }
    let mut session = place.begin().await;
    let mut adopted = 0;
    while let more @ 1.. = place.store.adopt(&mut session, 2).await.unwrap() {
        assert!(more <= 2);
        adopted += more;
    }
    session.commit().await.unwrap();
    assert!(adopted == 0 || adopted == 5, "{adopted}");
    let without = place
        .texts(&format!(
            "SELECT CAST(COUNT(*) AS text) AS value FROM {outbox} WHERE slot IS NULL"
        ))
        .await;
    assert_eq!(without[0].as_deref(), Some("0"));
    assert_eq!(place.pending().await.len(), 5);
}

pub(super) async fn dispatched_rows_move_once_and_are_kept_whole<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let mut envelope = keyed("ключ", b"\x00\xff");
    envelope.headers.set("h", "v\\u0000").unwrap();
    place.enqueue(&[envelope.clone(), keyless(b"stays")]).await;
    let rows = ids(&place.pending().await);
    let moved = settle(place, &fences, &rows[..1]).await;
    assert_eq!(moved, rows[..1]);
    assert!(settle(place, &fences, &rows[..1]).await.is_empty());
    assert_eq!(ids(&place.pending().await), rows[1..]);
    let dispatched = place.table("dispatched");
    let kept = place
        .texts(&format!(
            "SELECT message_type || '|' || ordering_key || '|' || {} AS value FROM {dispatched}",
            D::hex("payload")
        ))
        .await;
    assert_eq!(kept, [Some("order.placed|ключ|00ff".to_owned())]);
}

pub(super) async fn rows_of_fenced_lanes_move_and_the_others_stay<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let envelopes: Vec<Envelope> = (0..100).map(|n| keyed(&format!("k{n}"), b"")).collect();
    place.enqueue(&envelopes).await;
    let rows = ids(&place.pending().await);
    let some: Vec<Fence> = fences
        .iter()
        .filter(|fence| fence.grant.number % 2 == 0)
        .cloned()
        .collect();
    let moved: HashSet<RowId> = settle(place, &some, &rows).await.into_iter().collect();
    let even: HashSet<RowId> = rows
        .iter()
        .filter(|row| row.slot.number() % 2 == 0)
        .copied()
        .collect();
    assert_eq!(moved, even);
    assert_eq!(place.pending().await.len(), rows.len() - even.len());
}

pub(super) async fn dispatched_rows_stay_without_a_valid_fence<D: TestDatabase>(place: &Place<D>) {
    without_a_valid_fence(
        place,
        async |session: &mut Session<D>, fences: &[Fence], row| {
            place
                .store
                .mark_dispatched(session, fences, &[row])
                .await
                .unwrap()
        },
    )
    .await;
}

pub(super) async fn failed_rows_stay_as_they_are_without_a_valid_fence<D: TestDatabase>(
    place: &Place<D>,
) {
    without_a_valid_fence(
        place,
        async |session: &mut Session<D>, fences: &[Fence], row| {
            let failed = FailedRow {
                id: row,
                error: "no".to_owned(),
                hold: LONG,
            };
            place
                .store
                .mark_failed(session, fences, &[failed])
                .await
                .unwrap()
        },
    )
    .await;
}

pub(super) async fn removed_rows_stay_without_a_valid_fence<D: TestDatabase>(place: &Place<D>) {
    without_a_valid_fence(
        place,
        async |session: &mut Session<D>, fences: &[Fence], row| {
            place.store.remove(session, fences, &[row]).await.unwrap()
        },
    )
    .await;
}

/// Tries one settle with every fence that is none, then with the good one.
async fn without_a_valid_fence<D: TestDatabase>(
    place: &Place<D>,
    settle: impl AsyncFn(&mut Session<D>, &[Fence], RowId) -> Vec<RowId>,
) {
    let fences = place.own_lanes().await;
    place.enqueue(&[keyed("k", b"row")]).await;
    let row = ids(&place.pending().await)[0];
    let good = fences[usize::from(row.slot.number())].clone();
    let others: Vec<Fence> = fences
        .iter()
        .filter(|fence| **fence != good)
        .cloned()
        .collect();
    let mut cases = vec![("absent", Vec::new()), ("of other lanes", others)];
    for (what, fence) in place.bad_fences(&good).await {
        cases.push((what, vec![fence]));
    }
    let attempt = async |fences: &[Fence]| {
        let mut session = place.begin().await;
        let changed = settle(&mut session, fences, row).await;
        session.commit().await.unwrap();
        changed
    };
    for (what, fences) in cases {
        assert_eq!(attempt(&fences).await, [], "a fence {what}");
    }
    place.expire(&good).await;
    assert_eq!(attempt(&fences).await, [], "a fence whose time is over");
    let successor = place.own_expired(&Resource::Lanes, row.slot.number()).await;
    assert_eq!(
        attempt(&fences).await,
        [],
        "a fence that another member's replaced"
    );
    let rows = place.pending().await;
    assert_eq!(
        (rows.len(), rows[0].attempts),
        (1, 0),
        "the row is as it was"
    );
    assert_eq!(attempt(&[successor]).await, [row]);
}

pub(super) async fn rows_that_are_gone_or_in_another_lane_do_not_settle<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    place.enqueue(&[keyed("k", b"row")]).await;
    let row = ids(&place.pending().await)[0];
    let gone = RowId {
        position: row.position + 1000,
        ..row
    };
    let elsewhere = RowId {
        slot: Slot::new((row.slot.number() + 1) % 64).unwrap(),
        ..row
    };
    assert_eq!(settle(place, &fences, &[gone, elsewhere]).await, []);
    assert_eq!(fail(place, &fences, &[gone, elsewhere], LONG).await, []);
    assert_eq!(
        fail(place, &fences, &[gone, row, elsewhere], Duration::ZERO).await,
        [row]
    );
    assert_eq!(settle(place, &fences, &[elsewhere, row, gone]).await, [row]);
}

pub(super) async fn a_failure_counts_and_says_why<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    place.enqueue(&[keyed("k", b"row")]).await;
    let row = ids(&place.pending().await)[0];
    for attempts in 1..=3 {
        assert_eq!(fail(place, &fences, &[row], Duration::ZERO).await, [row]);
        assert_eq!(place.pending().await[0].attempts, attempts);
    }
    let outbox = place.table("outbox");
    let errors = place
        .texts(&format!("SELECT last_error AS value FROM {outbox}"))
        .await;
    assert_eq!(errors, [Some("the broker returned it".to_owned())]);
}

pub(super) async fn error_texts_are_stored_without_nul_and_cut<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let outbox = place.table("outbox");
    place.enqueue(&[keyed("k", b"row")]).await;
    let row = ids(&place.pending().await)[0];
    for (text, stored) in super::given::odd_errors() {
        let failed = FailedRow {
            id: row,
            error: text,
            hold: Duration::ZERO,
        };
        let mut session = place.begin().await;
        let changed = place
            .store
            .mark_failed(&mut session, &fences, &[failed])
            .await
            .unwrap();
        session.commit().await.unwrap();
        assert_eq!(changed, [row]);
        let found = place
            .texts(&format!("SELECT last_error AS value FROM {outbox}"))
            .await;
        assert_eq!(found, [Some(stored)]);
    }
}

pub(super) async fn removed_rows_leave_no_trace<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    place.enqueue(&[keyed("k", b"1"), keyed("k", b"2")]).await;
    let rows = ids(&place.pending().await);
    let mut session = place.begin().await;
    let removed = place
        .store
        .remove(&mut session, &fences, &rows[..1])
        .await
        .unwrap();
    let again = place
        .store
        .remove(&mut session, &fences, &rows[..1])
        .await
        .unwrap();
    session.commit().await.unwrap();
    assert_eq!(
        (removed.as_slice(), again.as_slice()),
        (&rows[..1], &[][..])
    );
    assert_eq!(
        (place.rows("outbox").await, place.rows("dispatched").await),
        (1, 0)
    );
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
    fail(place, &fences, &[a], LONG * 2).await;
    fail(place, &fences, &[b], LONG).await;
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
    fail(place, &fences, &named(&rows, &["1"]), LONG).await;
    let first = backlog().await;
    assert_eq!((first.rows, first.held), (3, 1));
    let second = backlog().await;
    assert!(second.oldest >= first.oldest && second.oldest < Duration::from_secs(300));
    settle(place, &fences, &named(&rows, &["2"])).await;
    assert_eq!(backlog().await.rows, 2);
}

/// The ids of the rows with these payloads.
fn named(rows: &[posta::store::OutboxRow], payloads: &[&str]) -> Vec<RowId> {
    let chosen = rows.iter().filter(|row| {
        let payload = &row.message.as_ref().unwrap().payload;
        payloads.iter().any(|wanted| payload == wanted.as_bytes())
    });
    chosen.map(|row| row.id).collect()
}

async fn settle<D: TestDatabase>(place: &Place<D>, fences: &[Fence], rows: &[RowId]) -> Vec<RowId> {
    let mut session = place.begin().await;
    let moved = place
        .store
        .mark_dispatched(&mut session, fences, rows)
        .await
        .unwrap();
    session.commit().await.unwrap();
    moved
}

async fn fail<D: TestDatabase>(
    place: &Place<D>,
    fences: &[Fence],
    rows: &[RowId],
    hold: Duration,
) -> Vec<RowId> {
    let error = "the broker returned it".to_owned();
    let rows: Vec<FailedRow> = rows
        .iter()
        .map(|id| FailedRow {
            id: *id,
            error: error.clone(),
            hold,
        })
        .collect();
    let mut session = place.begin().await;
    let changed = place
        .store
        .mark_failed(&mut session, fences, &rows)
        .await
        .unwrap();
    session.commit().await.unwrap();
    changed
}
