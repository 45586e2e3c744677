//! Many parked keys are in nobody's way.

use std::time::{Duration, Instant};

use posta::Slot;
use posta::store::{OutboxStore, RetryStore, Store};

use super::head;
use crate::harness::postgres::{migrated, number, run};

const NEVER: &str = "'9999-12-31 00:00:00+00'";

#[tokio::test]
async fn a_poll_does_not_walk_over_parked_rows() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    run(
        &guard.url(),
        &format!(
            "ANALYZE {name}.outbox;
             INSERT INTO {name}.outbox (message_type, ordering_key, payload, attempts, held_until, last_error, parked, dead_letter)
             SELECT 'a.b', 'k' || n, '', 1, {NEVER}, 'dead', true, n FROM generate_series(1, 20000) n;
             INSERT INTO {name}.outbox (message_type, ordering_key, payload) VALUES ('a.b', 'fresh', '')"
        ),
    )
    .await;
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut session = store.begin().await.unwrap();
    let rows = store.pending(&mut session, &lanes, &[], 100).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(store.next_due(&mut session, &lanes).await.unwrap(), None);
    session.commit().await.unwrap();
    let mut connection = guard.connection().await;
    number(&mut connection, "SELECT 1 FROM pg_stat_clear_snapshot()").await;
    let read = format!(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables
         WHERE schemaname = '{name}' AND relname = 'outbox'"
    );
    let read = number(&mut connection, &read).await;
    assert!(read < 1000, "{read} rows were read");

    let mut session = store.begin().await.unwrap();
    let backlog = store.backlog(&mut session).await.unwrap();
    session.rollback().await;
    assert_eq!((backlog.rows, backlog.held, backlog.parked), (1, 0, 20_000));
}

#[tokio::test]
async fn a_look_at_the_retry_table_does_not_walk_over_parked_keys_nor_their_successors() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    run(
        &guard.url(),
        &format!(
            "INSERT INTO {name}.retry (consumer, slot, message_id, message_type, version, ordering_key, headers, content_type,
                                       payload, attempts, due_at, parked, dead_letter)
             SELECT 'c', {name}.slot_of('k' || k), gen_random_uuid(), 'a.b', 1, 'k' || k, '{{}}', 'x', '', 0,
                    CASE WHEN n = 1 THEN timestamptz {NEVER} END, n = 1, CASE WHEN n = 1 THEN k END
             FROM generate_series(1, 500) k, generate_series(1, 100) n"
        ),
    )
    .await;
    let mut session = store.begin().await.unwrap();
    store
        .hold(&mut session, "c", &[head("other", "", Duration::ZERO)])
        .await
        .unwrap();
    let begun = Instant::now();
    for _ in 0..20 {
        let due = store.due(&mut session, "c", 0..=63, 100).await.unwrap();
        assert_eq!(due.len(), 1);
        let next = store.next_retry(&mut session, "c", 0..=63).await.unwrap();
        assert_eq!(next, Some(Duration::ZERO));
    }
    // With all of them walked over each time, minutes.
    assert!(
        begun.elapsed() < Duration::from_secs(20),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(
        store.held(&mut session, "c").await.unwrap(),
        (49_501, 501),
        "messages and keys"
    );
    session.rollback().await;
}
