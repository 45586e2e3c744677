//! Messages that are enqueued later.

use std::time::Duration;

use posta::message::Envelope;
use posta::store::{
    Due, Fence, NewScheduled, OutboxStore, RedispatchStore, ScheduleStore, Store, StoreErrorKind,
};
use posta::{MessageId, Slot};
use time::OffsetDateTime;

pub(super) use super::given::fresh as start;
use super::given::{
    LONG, ODD_TEXTS, Place, ids, keyed, keyless, messages, odd_payloads, payloads, without_time,
};
use crate::harness::database::TestDatabase;

const NOW: Due = Due::After(Duration::ZERO);

pub(super) async fn a_message_that_is_due_goes_to_the_outbox_and_no_other<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    schedule(
        place,
        &[
            (keyed("a", b"due"), NOW),
            (keyed("a", b"later"), Due::After(LONG)),
            (keyless(b"much later"), Due::After(Duration::MAX)),
        ],
    )
    .await;
    assert_eq!(
        place.rows("outbox").await,
        0,
        "nothing is enqueued before it is moved"
    );
    assert_eq!(count(place).await, 3);
    assert_eq!(enqueue(place, &fences, 100).await, 1);
    assert_eq!(payloads(&place.pending().await), ["due"]);
    assert_eq!(count(place).await, 2);
    assert_eq!(enqueue(place, &fences, 100).await, 0);
}

pub(super) async fn a_time_that_has_passed_is_due_at_once<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let now = now(place).await;
    schedule(
        place,
        &[
            (keyless(b"just now"), Due::At(now)),
            (keyless(b"long ago"), Due::At(OffsetDateTime::UNIX_EPOCH)),
            (keyless(b"soon"), Due::At(now + LONG)),
        ],
    )
    .await;
    assert_eq!(next(place).await, Some(Duration::ZERO));
    assert_eq!(enqueue(place, &fences, 100).await, 2);
    assert_eq!(payloads_by_position(place).await, ["long ago", "just now"]);
    let due = next(place).await.expect("one is scheduled");
    assert!(due <= LONG && due > LONG - Duration::from_secs(300));
}

pub(super) async fn due_messages_are_enqueued_by_time_and_then_as_they_were_scheduled<
    D: TestDatabase,
>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let now = now(place).await;
    let at = |seconds: u64| Due::At(now - Duration::from_secs(seconds));
    let mut scheduled = vec![
        (keyed("k", b"third"), at(10)),
        (keyed("k", b"first"), at(30)),
        (keyed("k", b"fourth"), at(10)),
        (keyed("k", b"second"), at(20)),
    ];
    // Of other lanes, with other times.
    scheduled.extend((0..50).map(|n| (keyed(&format!("k{n}"), b"other"), at(n))));
    schedule(place, &scheduled).await;
    // In steps of any size.
    let mut moved = 0;
    for limit in [1, 2, 7, 100] {
        let step = enqueue(place, &fences, limit).await;
        assert!(step <= limit);
        moved += step;
    }
    assert_eq!(moved, 54);
    let mut expected: Vec<(Due, usize, MessageId)> = scheduled
        .iter()
        .enumerate()
        .map(|(index, (envelope, due))| (*due, index, envelope.id))
        .collect();
    expected.sort_by_key(|(due, index, _)| match due {
        Due::At(at) => (*at, *index),
        Due::After(_) => unreachable!(),
    });
    let mut rows = place.pending().await;
    rows.sort_by_key(|row| row.id.position);
    let found: Vec<MessageId> = messages(&rows).iter().map(|row| row.id).collect();
    let expected: Vec<MessageId> = expected.into_iter().map(|(_, _, id)| id).collect();
    assert_eq!(found, expected);
}

pub(super) async fn a_scheduled_message_is_enqueued_as_it_was<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let before = now(place).await;
    let mut envelopes: Vec<Envelope> = odd_payloads()
        .iter()
        .map(|payload| keyed("bytes", payload))
        .collect();
    envelopes.extend(ODD_TEXTS.map(|text| {
        let mut envelope = keyed(text, text.as_bytes());
        envelope.headers.set("odd", text).unwrap();
        envelope.content_type = text.to_owned();
        envelope.version = 9;
        envelope
    }));
    let scheduled: Vec<_> = envelopes
        .iter()
        .map(|envelope| (envelope.clone(), Due::At(OffsetDateTime::UNIX_EPOCH)))
        .collect();
    schedule(place, &scheduled).await;
    assert_eq!(enqueue(place, &fences, 1000).await, envelopes.len());
    let mut rows = place.pending().await;
    rows.sort_by_key(|row| row.id.position);
    assert!(
        rows.iter()
            .zip(&envelopes)
            .all(|(row, envelope)| row.id.slot == envelope.slot())
    );
    let found = messages(&rows);
    // It is enqueued when it is due, not when it was scheduled.
    assert!(
        found
            .iter()
            .all(|envelope| envelope.enqueued_at >= Some(before))
    );
    let found: Vec<Envelope> = found.into_iter().map(without_time).collect();
    assert!(found == envelopes);
}

pub(super) async fn only_lanes_that_are_owned_are_served<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let (a, b) = (keyed("a", b"a"), keyed("b", b"b"));
    assert_ne!(a.slot(), b.slot());
    schedule(place, &[(a.clone(), NOW), (b.clone(), NOW)]).await;
    let of = |envelope: &Envelope| fences[usize::from(envelope.slot().number())].clone();
    let all: Vec<Slot> = Slot::all().collect();
    let good = of(&a);
    for (what, fence) in place.bad_fences(&good).await {
        assert_eq!(
            enqueue_in(place, &[fence], &all, 10).await,
            0,
            "a fence {what}"
        );
    }
    assert_eq!(enqueue_in(place, &[], &all, 10).await, 0, "no fence");
    assert_eq!(enqueue_in(place, &fences, &[], 10).await, 0, "no lane");
    assert_eq!(enqueue_in(place, &[of(&b)], &[a.slot()], 10).await, 0);
    assert_eq!(enqueue_in(place, &[good], &all, 10).await, 1);
    assert_eq!(payloads(&place.pending().await), ["a"]);
    assert_eq!(enqueue_in(place, &fences, &[a.slot()], 10).await, 0);
    place.expire(&of(&b)).await;
    assert_eq!(
        enqueue_in(place, &fences, &all, 10).await,
        0,
        "a fence whose time is over"
    );
    assert_eq!(count(place).await, 1);
}

pub(super) async fn a_message_can_be_cancelled_until_it_is_due<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let (cancelled, due, kept) = (keyless(b"cancelled"), keyless(b"due"), keyless(b"kept"));
    schedule(
        place,
        &[
            (cancelled.clone(), Due::After(LONG)),
            (due.clone(), NOW),
            (kept, Due::After(LONG)),
        ],
    )
    .await;
    assert!(cancel(place, cancelled.id).await);
    assert!(!cancel(place, cancelled.id).await);
    assert!(!cancel(place, MessageId::new()).await);
    assert_eq!(enqueue(place, &fences, 10).await, 1);
    assert!(!cancel(place, due.id).await, "it is on its way");
    assert_eq!(payloads(&place.pending().await), ["due"]);
    assert_eq!(count(place).await, 1);
}

pub(super) async fn a_message_is_scheduled_and_cancelled_in_one_transaction<D: TestDatabase>(
    place: &Place<D>,
) {
    let envelope = keyless(b"never");
    let mut session = place.begin().await;
    let tables = place.store.tables();
    D::insert_scheduled(&mut session, tables, &[new(&envelope, NOW)])
        .await
        .unwrap();
    assert!(
        D::cancel_scheduled(&mut session, tables, envelope.id)
            .await
            .unwrap()
    );
    session.commit().await.unwrap();
    assert_eq!(count(place).await, 0);
    assert_eq!(next(place).await, None);
}

pub(super) async fn what_is_rolled_back_is_not_scheduled_and_not_cancelled<D: TestDatabase>(
    place: &Place<D>,
) {
    let (kept, undone) = (keyless(b"kept"), keyless(b"undone"));
    schedule(place, &[(kept.clone(), Due::After(LONG))]).await;
    let mut session = place.begin().await;
    let tables = place.store.tables();
    D::insert_scheduled(&mut session, tables, &[new(&undone, NOW)])
        .await
        .unwrap();
    D::insert_scheduled(&mut session, tables, &[])
        .await
        .unwrap();
    assert!(
        D::cancel_scheduled(&mut session, tables, kept.id)
            .await
            .unwrap()
    );
    session.rollback().await;
    assert!(!cancel(place, undone.id).await);
    assert!(cancel(place, kept.id).await);
}

pub(super) async fn an_id_is_scheduled_once<D: TestDatabase>(place: &Place<D>) {
    let twice = keyless(b"twice");
    let mut session = place.begin().await;
    let scheduled = [
        new(&keyless(b"other"), NOW),
        new(&twice, NOW),
        new(&twice, Due::After(LONG)),
    ];
    let refused = D::insert_scheduled(&mut session, place.store.tables(), &scheduled).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Rejected);
    session.rollback().await;
    assert_eq!(count(place).await, 0);
}

/// A message whose id is in the outbox already must not stand in the way of the others.
pub(super) async fn an_id_that_waits_in_the_outbox_is_there_once<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let twice = keyed("k", b"twice");
    place.enqueue(std::slice::from_ref(&twice)).await;
    schedule(place, &[(twice, NOW), (keyed("k", b"after"), NOW)]).await;
    while enqueue(place, &fences, 1).await > 0 {}
    assert_eq!(count(place).await, 0);
    assert_eq!(payloads(&place.pending().await), ["twice", "after"]);
}

pub(super) async fn the_next_due_time_is_that_of_the_lanes_asked_for<D: TestDatabase>(
    place: &Place<D>,
) {
    assert_eq!(next(place).await, None);
    let (a, b) = (keyed("a", b""), keyed("b", b""));
    schedule(
        place,
        &[
            (a.clone(), Due::After(LONG * 2)),
            (b.clone(), Due::After(LONG)),
        ],
    )
    .await;
    let within = |due: Option<Duration>, delay: Duration| {
        due.is_some_and(|due| due <= delay && due > delay - Duration::from_secs(300))
    };
    assert!(within(next(place).await, LONG));
    assert!(within(next_in(place, &[a.slot()]).await, LONG * 2));
    let third = Slot::all()
        .find(|slot| ![a.slot(), b.slot()].contains(slot))
        .unwrap();
    assert_eq!(next_in(place, &[third]).await, None);
    assert_eq!(next_in(place, &[]).await, None);
}

pub(super) async fn a_message_that_was_enqueued_is_dispatched_like_any_other<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    place.enqueue(&[keyed("k", b"first")]).await;
    schedule(place, &[(keyed("k", b"second"), NOW)]).await;
    assert_eq!(enqueue(place, &fences, 10).await, 1);
    place.enqueue(&[keyed("k", b"third")]).await;
    let rows = place.pending().await;
    assert_eq!(payloads(&rows), ["first", "second", "third"]);
    assert_eq!(place.settle(&fences, &ids(&rows)).await.len(), 3);
    let backlog = place
        .done(async |store, session| store.backlog(session).await)
        .await;
    assert_eq!(backlog.rows, 0);
}

fn new(envelope: &Envelope, due: Due) -> NewScheduled {
    NewScheduled {
        envelope: envelope.clone(),
        due,
    }
}

async fn schedule<D: TestDatabase>(place: &Place<D>, scheduled: &[(Envelope, Due)]) {
    let scheduled: Vec<NewScheduled> = scheduled
        .iter()
        .map(|(envelope, due)| new(envelope, *due))
        .collect();
    place
        .done(async |store, session| D::insert_scheduled(session, store.tables(), &scheduled).await)
        .await;
}

async fn cancel<D: TestDatabase>(place: &Place<D>, id: MessageId) -> bool {
    place
        .done(async |store, session| D::cancel_scheduled(session, store.tables(), id).await)
        .await
}

async fn enqueue<D: TestDatabase>(place: &Place<D>, fences: &[Fence], limit: usize) -> usize {
    let lanes: Vec<Slot> = Slot::all().collect();
    enqueue_in(place, fences, &lanes, limit).await
}

async fn enqueue_in<D: TestDatabase>(
    place: &Place<D>,
    fences: &[Fence],
    lanes: &[Slot],
    limit: usize,
) -> usize {
    place
        .done(async |store, session| store.enqueue_due(session, fences, lanes, limit).await)
        .await
}

async fn next<D: TestDatabase>(place: &Place<D>) -> Option<Duration> {
    let lanes: Vec<Slot> = Slot::all().collect();
    next_in(place, &lanes).await
}

async fn next_in<D: TestDatabase>(place: &Place<D>, lanes: &[Slot]) -> Option<Duration> {
    place
        .done(async |store, session| store.next_scheduled(session, lanes).await)
        .await
}

async fn count<D: TestDatabase>(place: &Place<D>) -> u64 {
    place
        .done(async |store, session| store.scheduled(session).await)
        .await
}

async fn now<D: TestDatabase>(place: &Place<D>) -> OffsetDateTime {
    place
        .done(async |store, session| store.now(session).await)
        .await
}

async fn payloads_by_position<D: TestDatabase>(place: &Place<D>) -> Vec<String> {
    let mut rows = place.pending().await;
    rows.sort_by_key(|row| row.id.position);
    payloads(&rows)
}
