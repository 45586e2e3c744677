//! Rows of the outbox that wait behind one of their key, in such numbers that a look at their lane
//! must not go through them.

use std::time::Duration;

use posta::Slot;
use posta::message::Envelope;
use posta::store::{OutboxRow, OutboxStore, RowId, Store};

pub(super) use super::given::fresh as start;
use super::given::{LONG, Place, ids, keyed, named, payloads};
use crate::harness::database::TestDatabase;

/// More than are left where they are.
const MANY: usize = 40;

pub(super) async fn rows_behind_a_parked_row_wait_and_go_on_in_order<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let head = keyed("a", b"head");
    place.enqueue(std::slice::from_ref(&head)).await;
    let row = place.pending().await[0].id;
    let letter = place.park_row(&fences, row, &head).await;
    place.enqueue(&numbered("a", 0..MANY)).await;
    place.enqueue(&[keyed("b", b"b1")]).await;
    assert_eq!(payloads(&look(place).await), ["b1"]);
    assert_eq!(moved(place).await, MANY);
    // Those that come later wait as well, moved or not.
    place.enqueue(&numbered("a", MANY..MANY + 3)).await;
    assert_eq!(payloads(&look(place).await), ["b1"]);
    assert_eq!(moved(place).await, MANY);
    let backlog = place
        .done(async |store, session| store.backlog(session).await)
        .await;
    assert_eq!(
        (backlog.rows, backlog.held, backlog.parked),
        (MANY as u64 + 4, 0, 1),
        "what waits has not failed"
    );
    let lanes: Vec<Slot> = Slot::all().collect();
    let due = place
        .done(async |store, session| store.next_due(session, &lanes).await)
        .await;
    assert_eq!(due, None);
    assert_eq!(place.letter(letter).await.successors, MANY as u64 + 3);
    let behind = place.successors(letter, 100).await;
    assert_eq!(behind.len(), MANY + 3);
    assert!(place.unpark_row(letter).await);
    let rows = place.pending().await;
    let mut expected = texts(0..MANY + 3);
    expected.insert(MANY, "b1".to_owned());
    assert_eq!(payloads(&rows), expected);
    assert!(rows.iter().all(|row| row.attempts == 0));
    assert_eq!(place.settle(&fences, &ids(&rows)).await.len(), MANY + 4);
}

pub(super) async fn rows_behind_a_readmitted_row_follow_it<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let head = keyed("a", b"head");
    place.enqueue(std::slice::from_ref(&head)).await;
    let row = place.pending().await[0].id;
    let letter = place.park_row(&fences, row, &head).await;
    place.enqueue(&numbered("a", 0..MANY)).await;
    assert!(look(place).await.is_empty());
    assert!(place.readmit(letter, &head).await);
    let mut gone = Vec::new();
    while place.rows("outbox").await > 0 {
        let rows = place.pending().await;
        gone.extend(payloads(&rows));
        place.settle(&fences, &ids(&rows)).await;
    }
    assert_eq!(gone[0], "head");
    assert_eq!(gone[1..], texts(0..MANY));
}

pub(super) async fn rows_behind_follow_a_head_that_gets_through_after_its_hold<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let head = held(place, &fences).await;
    place.fail(&fences, &[head], Duration::ZERO).await;
    let rows = place.pending().await;
    assert_eq!(payloads(&rows), ["head"]);
    place.settle(&fences, &[head]).await;
    assert_eq!(payloads(&place.pending().await), texts(0..MANY));
    assert_eq!(moved(place).await, 0);
}

pub(super) async fn rows_behind_follow_a_head_that_is_removed<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    let head = held(place, &fences).await;
    let gone = place
        .done(async |store, session| store.remove(session, &fences, &[head]).await)
        .await;
    assert_eq!(gone, [head]);
    assert_eq!(payloads(&place.pending().await), texts(0..MANY));
}

pub(super) async fn rows_behind_a_head_that_was_deleted_by_hand_go_on<D: TestDatabase>(
    place: &Place<D>,
) {
    let fences = place.own_lanes().await;
    let head = held(place, &fences).await;
    let table = place.table("outbox");
    place
        .run(&format!(
            "DELETE FROM {table} WHERE position = {}",
            head.position
        ))
        .await;
    place.enqueue(&[keyed("a", b"last")]).await;
    let mut expected = texts(0..MANY);
    expected.push("last".to_owned());
    assert_eq!(payloads(&look(place).await), expected);
}

pub(super) async fn a_short_hold_moves_nothing<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    place.enqueue(&[keyed("a", b"head")]).await;
    let head = place.pending().await[0].id;
    place.enqueue(&numbered("a", 0..MANY)).await;
    place.fail(&fences, &[head], Duration::from_secs(4)).await;
    look(place).await;
    assert_eq!(moved(place).await, 0);
}

pub(super) async fn few_rows_stay_where_they_are<D: TestDatabase>(place: &Place<D>) {
    let fences = place.own_lanes().await;
    place.enqueue(&[keyed("a", b"head")]).await;
    let head = place.pending().await[0].id;
    place.enqueue(&numbered("a", 0..5)).await;
    place.fail(&fences, &[head], LONG).await;
    assert!(look(place).await.is_empty());
    assert_eq!(moved(place).await, 0);
}

/// More than one round moves, either way.
pub(super) async fn a_long_queue_behind_a_key_is_moved_in_steps_and_goes_on_in_order<
    D: TestDatabase,
>(
    place: &Place<D>,
) {
    const LONG_QUEUE: usize = 5_000;
    let fences = place.own_lanes().await;
    let head = keyed("a", b"head");
    place.enqueue(std::slice::from_ref(&head)).await;
    let row = place.pending().await[0].id;
    let letter = place.park_row(&fences, row, &head).await;
    place.enqueue(&numbered("a", 0..LONG_QUEUE)).await;
    let mut before = 0;
    for _ in 0..4 {
        assert!(look(place).await.is_empty());
        let now = moved(place).await;
        assert!(now - before <= 2_000, "{before}, then {now}");
        before = now;
    }
    assert_eq!(before, LONG_QUEUE);
    assert!(place.unpark_row(letter).await);
    let mut gone = Vec::new();
    while gone.len() < LONG_QUEUE {
        let rows = place.pending_at_most(1_000).await;
        gone.extend(payloads(&rows));
        place.settle(&fences, &ids(&rows)).await;
    }
    assert_eq!(gone, texts(0..LONG_QUEUE));
    assert_eq!(place.rows("outbox").await, 0);
}

/// A head on hold for long, and many that wait behind it and have been moved.
async fn held<D: TestDatabase>(place: &Place<D>, fences: &[posta::store::Fence]) -> RowId {
    place.enqueue(&[keyed("a", b"head")]).await;
    place.enqueue(&numbered("a", 0..MANY)).await;
    let head = named(&place.pending().await, &["head"])[0];
    place.fail(fences, &[head], LONG).await;
    assert!(look(place).await.is_empty());
    assert_eq!(moved(place).await, MANY);
    head
}

/// What is pending for a process that has not looked yet: it does not pause.
async fn look<D: TestDatabase>(place: &Place<D>) -> Vec<OutboxRow> {
    let store = place.another().await;
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut session = store.begin().await.expect("a transaction begins");
    let rows = store.pending(&mut session, &lanes, &[], 10_000).await;
    session.commit().await.expect("the reading commits");
    rows.expect("pending")
}

/// How many rows are out of their lane's way.
async fn moved<D: TestDatabase>(place: &Place<D>) -> usize {
    let table = place.table("outbox");
    let count = place
        .texts(&format!(
            "SELECT CAST(COUNT(*) AS text) AS value FROM {table}
             WHERE last_error = 'waits behind an earlier message of its key' AND held_until IS NOT NULL AND attempts = 1"
        ))
        .await;
    let count = count[0].as_deref().expect("a count");
    count.parse().expect("a number")
}

fn texts(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|n| n.to_string()).collect()
}

fn numbered(key: &str, numbers: std::ops::Range<usize>) -> Vec<Envelope> {
    numbers
        .map(|n| keyed(key, n.to_string().as_bytes()))
        .collect()
}
