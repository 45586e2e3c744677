//! Many parked keys are in nobody's way.

use std::time::{Duration, Instant};

use diesel_async::SimpleAsyncConnection;
use posta::store::{LetterId, OutboxRow, OutboxStore, PostgresStore, RetryStore, Store};
use posta::{Slot, Tables};

use super::{becomes, head};
use crate::harness::postgres::{migrated, number, run, store as again};

const NEVER: &str = "timestamptz '9999-12-31 00:00:00+00'";

/// Connections of the database besides this one.
const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()";

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

/// As many as wait behind one key, or a few behind each of many.
#[tokio::test]
async fn a_poll_does_not_walk_over_what_waits_behind_parked_rows() {
    for (keys, successors) in [(1, 20_000), (5_000, 4)] {
        let (guard, store) = migrated().await;
        let name = store.tables().name().to_owned();
        run(
            &guard.url(),
            &format!(
                "INSERT INTO {name}.outbox (message_type, ordering_key, payload, attempts, held_until, last_error, parked, dead_letter)
                 SELECT 'a.b', 'k' || n, '', 1, {NEVER}, 'dead', true, n FROM generate_series(1, {keys}) n;
                 INSERT INTO {name}.outbox (message_type, ordering_key, payload)
                 SELECT 'a.b', 'k' || k, '' FROM generate_series(1, {successors}) n, generate_series(1, {keys}) k;
                 INSERT INTO {name}.outbox (message_type, ordering_key, payload) VALUES ('a.b', 'fresh', '')"
            ),
        )
        .await;
        let lanes: Vec<Slot> = Slot::all().collect();
        let poll = async |store: &PostgresStore| {
            let mut session = store.begin().await.unwrap();
            let rows = store.pending(&mut session, &lanes, &[], 100).await.unwrap();
            assert_eq!(rows.len(), 1, "nobody else waits");
            session.commit().await.unwrap();
        };
        // Each poll moves some of them out of the way, until few are left.
        for _ in 0..20 {
            poll(&store).await;
        }
        // As the planner knows them now, nearly all are on hold, and maybe of one lane.
        run(&guard.url(), &format!("ANALYZE {name}.outbox")).await;
        let mut connection = guard.connection().await;
        let read = format!(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables
             WHERE schemaname = '{name}' AND relname = 'outbox'"
        );
        // A connection that is closed has told what it read.
        let before = {
            drop(store);
            becomes(&mut connection, SESSIONS, 0).await;
            number(&mut connection, &read).await
        };
        let store = again(&guard.url(), Tables::named(name.clone()).unwrap());
        poll(&store).await;
        drop(store);
        becomes(&mut connection, SESSIONS, 0).await;
        let read = number(&mut connection, &read).await - before;
        // A walk over the keys, and what is left at the fronts of the lanes.
        let limit = 3 * keys + 10_000;
        assert!(
            read < limit,
            "{read} rows were read, with {keys} parked keys"
        );
    }
}

/// The planner knows that there are two keys, and not that one has all the rows on hold.
#[tokio::test]
async fn the_backlog_of_a_key_beside_a_parked_one_is_looked_up_by_key() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    run(
        &guard.url(),
        &format!(
            "INSERT INTO {name}.outbox (message_type, ordering_key, payload, attempts, held_until, last_error, parked, dead_letter)
             VALUES ('a.b', 'k', '', 1, {NEVER}, 'dead', true, 1);
             INSERT INTO {name}.outbox (message_type, ordering_key, payload, attempts, held_until, last_error)
             SELECT 'a.b', 'k', '', 1, timestamptz '9999-12-30 00:00:00+00', 'behind' FROM generate_series(1, 5000);
             INSERT INTO {name}.outbox (message_type, ordering_key, payload)
             SELECT 'a.b', 'other', '' FROM generate_series(1, 10000);
             ANALYZE {name}.outbox"
        ),
    )
    .await;
    let mut connection = guard.connection().await;
    let read = format!(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables
         WHERE schemaname = '{name}' AND relname = 'outbox'"
    );
    // A connection that is closed has told what it read.
    let tables = store.tables().clone();
    drop(store);
    becomes(&mut connection, SESSIONS, 0).await;
    let store = again(&guard.url(), tables);
    let before = number(&mut connection, &read).await;
    let mut session = store.begin().await.unwrap();
    let lanes: Vec<Slot> = Slot::all().collect();
    let rows = store.pending(&mut session, &lanes, &[], 100).await.unwrap();
    assert_eq!(rows.len(), 100);
    session.commit().await.unwrap();
    drop(store);
    becomes(&mut connection, SESSIONS, 0).await;
    let read = number(&mut connection, &read).await - before;
    // By position it would be a million and more; the table once, for the rows chosen, is as it may.
    assert!(read < 50_000, "{read} rows were read for 100");
}

#[tokio::test]
async fn a_row_that_commits_late_is_found_before_those_that_were_moved_behind() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    let insert = |text: &str| {
        format!(
            "INSERT INTO {name}.outbox (message_type, ordering_key, payload) VALUES ('a.b', 'k', '{text}')"
        )
    };
    let place = format!(
        "INSERT INTO {name}.outbox (message_type, ordering_key, payload, attempts, held_until, last_error, parked, dead_letter)
         VALUES ('a.b', 'k', '', 1, {NEVER}, 'dead', true, 1)"
    );
    let (mut first, mut second) = (guard.connection().await, guard.connection().await);
    first
        .batch_execute(&format!("BEGIN; {}", insert("first")))
        .await
        .unwrap();
    run(&guard.url(), &place).await;
    second
        .batch_execute(&format!("BEGIN; {}", insert("second")))
        .await
        .unwrap();
    run(&guard.url(), &vec![insert("later"); 20].join("; ")).await;
    let lanes: Vec<Slot> = Slot::all().collect();
    let look = async || {
        let mut session = store.begin().await.unwrap();
        let rows = store.pending(&mut session, &lanes, &[], 100).await.unwrap();
        session.commit().await.unwrap();
        let text = |row: &OutboxRow| {
            let payload = row.message.as_ref().unwrap().payload.clone();
            String::from_utf8(payload.to_vec()).unwrap()
        };
        rows.iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(look().await, [""; 0]);
    let moved = format!("SELECT count(*) FROM {name}.outbox WHERE attempts = 1 AND NOT parked");
    let mut connection = guard.connection().await;
    assert_eq!(number(&mut connection, &moved).await, 20);
    first.batch_execute("COMMIT").await.unwrap();
    second.batch_execute("COMMIT").await.unwrap();
    assert_eq!(look().await, ["first"], "it is before the place");
    let mut session = store.begin().await.unwrap();
    assert!(store.unpark(&mut session, LetterId(1)).await.unwrap());
    session.commit().await.unwrap();
    let mut expected = vec!["first", "second"];
    expected.extend(["later"; 20]);
    assert_eq!(look().await, expected);
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
                    CASE WHEN n = 1 THEN {NEVER} END, n = 1, CASE WHEN n = 1 THEN k END
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
