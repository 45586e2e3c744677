//! What ends a dispatch: rows move, fail, or go, and only under a valid fence.

use std::collections::HashSet;
use std::time::Duration;

use posta::Slot;
use posta::message::Envelope;
use posta::store::{FailedRow, Fence, OutboxStore, Resource, RowId, Session};

pub(super) use super::given::fresh as start;
use super::given::{LONG, Place, ids, keyed, keyless, odd_errors};
use crate::harness::database::TestDatabase;

pub(super) async fn dispatched_rows_move_once_and_are_kept_whole<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let mut envelope = keyed("ключ", b"\x00\xff");
    envelope.headers.set("h", "v\\u0000").unwrap();
    place.enqueue(&[envelope.clone(), keyless(b"stays")]).await;
    let rows = ids(&place.pending().await);
    let moved = place.settle(&fences, &rows[..1]).await;
    assert_eq!(moved, rows[..1]);
    assert!(place.settle(&fences, &rows[..1]).await.is_empty());
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
    let moved: HashSet<RowId> = place.settle(&some, &rows).await.into_iter().collect();
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
    assert_eq!(place.settle(&fences, &[gone, elsewhere]).await, []);
    assert_eq!(place.fail(&fences, &[gone, elsewhere], LONG).await, []);
    assert_eq!(
        place
            .fail(&fences, &[gone, row, elsewhere], Duration::ZERO)
            .await,
        [row]
    );
    assert_eq!(place.settle(&fences, &[elsewhere, row, gone]).await, [row]);
}

pub(super) async fn a_failure_counts_and_says_why<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    place.enqueue(&[keyed("k", b"row")]).await;
    let row = ids(&place.pending().await)[0];
    for attempts in 1..=3 {
        assert_eq!(place.fail(&fences, &[row], Duration::ZERO).await, [row]);
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
    for (text, stored) in odd_errors() {
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
