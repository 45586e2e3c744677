use diesel_async::SimpleAsyncConnection;
use posta::Slot;
use posta::store::{OutboxStore, Store};

use super::chain;
use crate::harness::postgres::{migrated, number, run};

/// F01
#[tokio::test]
async fn a_row_that_commits_late_is_found_behind_those_already_dispatched() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    let insert = |text: &str| {
        format!(
            "INSERT INTO {name}.outbox (message_type, ordering_key, payload) VALUES ('a.b', 'k', '{text}')"
        )
    };
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut late = guard.connection().await;
    late.batch_execute(&format!("BEGIN; {}", insert("1")))
        .await
        .unwrap();
    run(&guard.url(), &insert("2")).await;
    let mut session = store.begin().await.unwrap();
    let rows = store.pending(&mut session, &lanes, &[], 10).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].id.position, 2);
    session
        .batch_execute(&format!("DELETE FROM {name}.outbox"))
        .await
        .unwrap();
    session.commit().await.unwrap();
    late.batch_execute("COMMIT").await.unwrap();
    let mut session = store.begin().await.unwrap();
    let rows = store.pending(&mut session, &lanes, &[], 10).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].id.position, 1);
    session.rollback().await;
}

#[tokio::test]
async fn a_lane_with_a_backlog_leaves_room_for_the_others() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    run(
        &guard.url(),
        &format!(
            "INSERT INTO {name}.outbox (message_type, ordering_key, payload)
             SELECT 'a.b', 'order-1', '' FROM generate_series(1, 5000);
             INSERT INTO {name}.outbox (message_type, ordering_key, payload)
             SELECT 'a.b', 'order-2', '' FROM generate_series(1, 3)"
        ),
    )
    .await;
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut session = store.begin().await.unwrap();
    let rows = store.pending(&mut session, &lanes, &[], 100).await.unwrap();
    let of_lane = |number| {
        rows.iter()
            .filter(|row| row.id.slot.number() == number)
            .count()
    };
    assert_eq!((of_lane(11), of_lane(61)), (97, 3));
    // Even where there is less room than lanes, chance gives each its turn.
    let mut seen = false;
    for _ in 0..200 {
        let rows = store.pending(&mut session, &lanes, &[], 1).await.unwrap();
        assert_eq!(rows.len(), 1);
        seen = seen || rows[0].id.slot.number() == 61;
    }
    assert!(seen, "200 times the same lane of two");
    session.rollback().await;
}

/// Rows that wait are read by their index, whatever the planner believes of the table.
#[tokio::test]
async fn a_poll_does_not_walk_over_rows_on_hold() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    run(
        &guard.url(),
        &format!(
            "ANALYZE {name}.outbox;
             INSERT INTO {name}.outbox (message_type, ordering_key, payload, attempts, held_until, last_error)
             SELECT 'a.b', 'k' || n, '', 1, now() + interval '1 hour', 'unroutable' FROM generate_series(1, 20000) n;
             INSERT INTO {name}.outbox (message_type, ordering_key, payload) VALUES ('a.b', 'fresh', '')"
        ),
    )
    .await;
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut session = store.begin().await.unwrap();
    let rows = store.pending(&mut session, &lanes, &[], 100).await.unwrap();
    assert_eq!(rows.len(), 1);
    session.commit().await.unwrap();
    let mut connection = guard.connection().await;
    number(&mut connection, "SELECT 1 FROM pg_stat_clear_snapshot()").await;
    let read = format!(
        "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables
         WHERE schemaname = '{name}' AND relname = 'outbox'"
    );
    // The inserts read nothing; so this is what the poll read, once the server has counted it.
    let read = number(&mut connection, &read).await;
    assert!(read < 1000, "{read} rows were read");
}

#[tokio::test]
async fn a_row_that_nobody_can_read_comes_alone() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    run(
        &guard.url(),
        &format!(
            "INSERT INTO {name}.outbox (message_type, payload, headers) VALUES
                 ('a.b', '1', '{{}}'), ('a b', '2', '{{}}'), ('a.b', '3', '{{\"n\": 1e400}}'),
                 ('a.b', '4', '{{\"\": \"x\"}}'), ('a.b', '5', '{{}}');
             INSERT INTO {name}.outbox (message_type, payload, enqueued_at) VALUES
                 ('a.b', '6', 'infinity'), ('a.b', '7', '-infinity'), ('a.b', '8', '294276-01-01')"
        ),
    )
    .await;
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut session = store.begin().await.unwrap();
    let rows = store.pending(&mut session, &lanes, &[], 100).await;
    let rows = rows.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let good: Vec<bool> = rows.iter().map(|row| row.message.is_ok()).collect();
    assert_eq!(good, [true, false, false, false, true, true, true, true]);
    assert!(rows[5].message.as_ref().unwrap().enqueued_at.is_none());
    session.rollback().await;
}
