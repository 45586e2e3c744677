//! Rows that were dispatched go out again.

use std::collections::HashMap;
use std::time::Duration;

use posta::MessageId;
use posta::message::Envelope;
use posta::store::{
    RecordStore, RedispatchFilter, RedispatchPreview, RedispatchStep, RedispatchStore,
};
use time::OffsetDateTime;

pub(super) use super::given::fresh as start;
use super::given::{
    Place, ids, keyed, keyless, messages, odd_payloads, payloads, type_of, without_time,
};
use crate::harness::database::TestDatabase;

pub(super) async fn the_databases_clock_does_not_go_backwards<D: TestDatabase>(place: &Place<D>) {
    let first = now(place).await;
    let second = now(place).await;
    assert!(second >= first && second - first < Duration::from_secs(300));
}

pub(super) async fn rows_go_out_again_as_they_were<D: TestDatabase>(place: &Place<D>) {
    let mut envelopes: Vec<Envelope> = odd_payloads()
        .iter()
        .map(|payload| keyed("k", payload))
        .collect();
    envelopes[0].headers.set("h", "v\\u0000").unwrap();
    envelopes[0].content_type = "text/plain".to_owned();
    envelopes[0].version = 7;
    let filter = dispatched(place, &envelopes).await;
    assert!(place.pending().await.is_empty());
    assert_eq!(redispatch(place, &filter, 1000).await, envelopes.len());
    let rows = place.pending().await;
    assert!(
        rows.iter()
            .all(|row| row.attempts == 0 && row.letter.is_none())
    );
    assert!(
        rows.iter()
            .zip(&envelopes)
            .all(|(row, envelope)| row.id.slot == envelope.slot())
    );
    let found: Vec<Envelope> = messages(&rows).into_iter().map(without_time).collect();
    assert!(found == envelopes);
    assert_eq!(place.rows("dispatched").await, 0);
    assert_eq!(redispatch(place, &filter, 1000).await, 0);
}

pub(super) async fn steps_take_everything_once_and_keep_each_keys_order<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let envelopes: Vec<Envelope> = (0..60)
        .map(|n: usize| keyed(&format!("k{}", n % 7), n.to_string().as_bytes()))
        .collect();
    place.enqueue(&envelopes).await;
    let mut rows = place.pending().await;
    // They were dispatched in another order than they were enqueued in.
    rows.sort_by_key(|row| std::cmp::Reverse(row.id.position));
    for chunk in ids(&rows).chunks(9) {
        place.settle(&fences, chunk).await;
    }
    let filter = everything(place).await;
    let mut found = Vec::new();
    let mut steps = 0;
    loop {
        let step = redispatch(place, &filter, 8).await;
        assert!(step <= 8);
        // What goes out again meanwhile is dispatched anew, and is not taken a second time.
        let mut rows = place.pending().await;
        rows.sort_by_key(|row| row.id.position);
        found.extend(messages(&rows));
        assert_eq!(place.settle(&fences, &ids(&rows)).await.len(), rows.len());
        if step == 0 {
            break;
        }
        steps += 1;
    }
    assert_eq!(steps, 8);
    let found_ids: Vec<MessageId> = found.iter().map(|envelope| envelope.id).collect();
    let expected: Vec<MessageId> = envelopes.iter().map(|envelope| envelope.id).collect();
    assert_eq!(found_ids, expected);
    let mut by_key: HashMap<_, Vec<usize>> = HashMap::new();
    for envelope in found {
        let number = std::str::from_utf8(&envelope.payload)
            .unwrap()
            .parse()
            .unwrap();
        by_key.entry(envelope.key).or_default().push(number);
    }
    assert!(by_key.values().all(|numbers| numbers.is_sorted()));
    assert_eq!(place.rows("dispatched").await, 60);
}

pub(super) async fn a_step_begins_behind_the_one_before<D: TestDatabase>(place: &Place<D>) {
    let envelopes: Vec<Envelope> = (0..6)
        .map(|n: usize| keyed("k", n.to_string().as_bytes()))
        .collect();
    let all = dispatched(place, &envelopes).await;
    let since = RedispatchFilter {
        from: Some(all.before - Duration::from_secs(3600)),
        ..all.clone()
    };
    for filter in [&all, &since] {
        let mut session = place.begin().await;
        let mut after = None;
        let mut steps = Vec::new();
        loop {
            let step = place
                .store
                .redispatch(&mut session, filter, after, 4)
                .await
                .unwrap();
            assert_eq!(step.last.is_some(), step.rows > 0);
            steps.push(step.rows);
            if step.rows == 0 {
                break;
            }
            assert!(step.last > after);
            after = step.last;
        }
        session.rollback().await;
        assert_eq!(steps, [4, 2, 0]);
    }
    // What is before it is not looked at.
    let first = redispatch_after(place, &since, None, 1).await;
    let third = first.last.map(|first| first + 1);
    assert_eq!(redispatch_after(place, &since, third, 100).await.rows, 4);
    assert_eq!(payloads(&place.pending().await), ["0", "2", "3", "4", "5"]);
    assert_eq!(redispatch(place, &since, 100).await, 1);
}

pub(super) async fn each_field_of_a_redispatch_chooses<D: TestDatabase>(place: &Place<D>) {
    let mut other = keyless(b"type");
    other.message_type = type_of("invoice.sent");
    let all = dispatched(
        place,
        &[
            keyed("a", b"a1"),
            keyed("b", b"b1"),
            keyed("a", b"a2"),
            other,
        ],
    )
    .await;
    let cases: [(RedispatchFilter, u64, u64); 6] = [
        (all.clone(), 4, 2),
        (
            RedispatchFilter {
                key: Some("a".to_owned()),
                ..all.clone()
            },
            2,
            1,
        ),
        (
            RedispatchFilter {
                message_type: Some("invoice.sent".to_owned()),
                ..all.clone()
            },
            1,
            0,
        ),
        (
            RedispatchFilter {
                from: Some(all.before),
                ..all.clone()
            },
            0,
            0,
        ),
        (
            RedispatchFilter {
                from: Some(all.before - Duration::from_secs(3600)),
                ..all.clone()
            },
            4,
            2,
        ),
        (
            RedispatchFilter {
                before: all.before - Duration::from_secs(3600),
                ..all.clone()
            },
            0,
            0,
        ),
    ];
    for (filter, rows, keys) in cases {
        let found = preview(place, &filter).await;
        assert_eq!((found.rows, found.keys), (rows, keys), "{filter:?}");
        let mut session = place.begin().await;
        let moved = place
            .store
            .redispatch(&mut session, &filter, None, 100)
            .await
            .unwrap();
        session.rollback().await;
        assert_eq!(moved.rows as u64, rows, "{filter:?}");
    }
    let filter = RedispatchFilter {
        key: Some("a".to_owned()),
        ..all
    };
    assert_eq!(redispatch(place, &filter, 100).await, 2);
    assert_eq!(payloads(&place.pending().await), ["a1", "a2"]);
    assert_eq!(place.rows("dispatched").await, 2);
}

pub(super) async fn rows_go_out_again_behind_what_waits<D: TestDatabase>(place: &Place<D>) {
    let filter = dispatched(place, &[keyed("k", b"old 1"), keyed("k", b"old 2")]).await;
    place.enqueue(&[keyed("k", b"new")]).await;
    assert_eq!(redispatch(place, &filter, 100).await, 2);
    assert_eq!(payloads(&place.pending().await), ["new", "old 1", "old 2"]);
}

pub(super) async fn a_row_whose_id_waits_already_goes_out_once<D: TestDatabase>(place: &Place<D>) {
    let twice = keyed("k", b"twice");
    let filter = dispatched(place, &[twice.clone(), keyed("k", b"other")]).await;
    place.enqueue(&[twice]).await;
    let mut moved = 0;
    while let step @ 1.. = redispatch(place, &filter, 1).await {
        moved += step;
    }
    assert_eq!(moved, 2);
    assert_eq!(payloads(&place.pending().await), ["twice", "other"]);
    assert_eq!(place.rows("dispatched").await, 0);
}

pub(super) async fn a_preview_counts_what_each_consumer_lacks<D: TestDatabase>(place: &Place<D>) {
    let mut other = keyless(b"type");
    other.message_type = type_of("invoice.sent");
    let envelopes = [
        keyed("a", b"a1"),
        keyed("a", b"a2"),
        keyed("b", b"b1"),
        other,
    ];
    let filter = dispatched(place, &envelopes).await;
    let expected = |lacking: &[(&str, u64)]| RedispatchPreview {
        rows: 4,
        keys: 2,
        lacking: lacking
            .iter()
            .map(|(consumer, rows)| ((*consumer).to_owned(), *rows))
            .collect(),
    };
    assert_eq!(preview(place, &filter).await, expected(&[]));
    let orders = (type_of("order.placed"), 1);
    let invoices = (type_of("invoice.sent"), 1);
    for (consumer, types) in [
        ("all", vec![orders.clone(), invoices.clone()]),
        ("billing", vec![invoices]),
        ("idle", vec![(type_of("never.sent"), 1)]),
        ("shipping", vec![orders]),
    ] {
        let fence = place.own_partition(consumer).await;
        // One that it has handled, and one that it never could have.
        let handled = [envelopes[1].id, MessageId::new()];
        let _ = place.admit(consumer, &fence, &handled, &[]).await;
        place
            .done(async |store, session| store.announce(session, consumer, &types).await)
            .await;
    }
    assert_eq!(
        preview(place, &filter).await,
        expected(&[("all", 3), ("billing", 1), ("shipping", 2)])
    );
    let other = RedispatchFilter {
        message_type: Some("never.sent".to_owned()),
        ..filter
    };
    assert_eq!(preview(place, &other).await, RedispatchPreview::default());
}

pub(super) async fn a_redispatch_that_is_rolled_back_never_was<D: TestDatabase>(place: &Place<D>) {
    let filter = dispatched(place, &[keyless(b"1"), keyless(b"2")]).await;
    let mut session = place.begin().await;
    let moved = place
        .store
        .redispatch(&mut session, &filter, None, 100)
        .await
        .unwrap();
    session.rollback().await;
    assert_eq!(moved.rows, 2);
    assert_eq!(
        (place.rows("dispatched").await, place.rows("outbox").await),
        (2, 0)
    );
}

/// Enqueues and dispatches; the filter of all that was dispatched so far.
async fn dispatched<D: TestDatabase>(place: &Place<D>, envelopes: &[Envelope]) -> RedispatchFilter {
    let fences = place.own_lanes().await;
    place.enqueue(envelopes).await;
    let rows = ids(&place.pending().await);
    assert_eq!(place.settle(&fences, &rows).await.len(), envelopes.len());
    everything(place).await
}

/// All that was dispatched so far. Told by a clock that may tick in milliseconds, so it waits for
/// the next tick: what is dispatched in the very moment of the cut is behind it.
async fn everything<D: TestDatabase>(place: &Place<D>) -> RedispatchFilter {
    let first = now(place).await;
    let before = loop {
        let next = now(place).await;
        if next > first {
            break next;
        }
    };
    RedispatchFilter {
        from: None,
        before,
        message_type: None,
        key: None,
    }
}

async fn now<D: TestDatabase>(place: &Place<D>) -> OffsetDateTime {
    place
        .done(async |store, session| store.now(session).await)
        .await
}

async fn preview<D: TestDatabase>(
    place: &Place<D>,
    filter: &RedispatchFilter,
) -> RedispatchPreview {
    place
        .done(async |store, session| store.preview_redispatch(session, filter).await)
        .await
}

async fn redispatch<D: TestDatabase>(
    place: &Place<D>,
    filter: &RedispatchFilter,
    limit: usize,
) -> usize {
    redispatch_after(place, filter, None, limit).await.rows
}

async fn redispatch_after<D: TestDatabase>(
    place: &Place<D>,
    filter: &RedispatchFilter,
    after: Option<i64>,
    limit: usize,
) -> RedispatchStep {
    place
        .done(async |store, session| store.redispatch(session, filter, after, limit).await)
        .await
}
