use std::collections::HashSet;

use diesel::sql_types::{BigInt, Text};
use diesel_async::RunQueryDsl as _;
use posta::store::{OutboxStore, SqliteStore, Store};
use posta::{Database as _, Slot, Sqlite};

use super::child::{Process, message};
use crate::harness::sqlite::SqliteFile;

/// How many rows were dispatched.
pub(super) async fn dispatched(store: &SqliteStore) -> usize {
    number(store, "SELECT COUNT(*) AS value FROM posta_dispatched").await
}

async fn number(store: &SqliteStore, sql: &str) -> usize {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = BigInt)]
        value: i64,
    }
    let mut session = store.begin().await.expect("a transaction begins");
    let row: Row = diesel::sql_query(sql)
        .get_result(&mut *session)
        .await
        .expect("a number");
    session.commit().await.expect("commits");
    usize::try_from(row.value).expect("a count")
}

/// Case: a deferred transaction that reads and then writes is refused at once, whatever the busy
/// timeout.
#[tokio::test]
async fn two_dispatchers_and_two_producers_in_four_processes_never_fail_for_a_lock() {
    let (file, store) = SqliteFile::migrated().await;
    let roles = ["dispatch", "produce", "dispatch", "produce"];
    let processes = roles.map(|role| Process::start(role, &file.path()));
    for process in processes {
        tokio::task::spawn_blocking(|| process.ends_well())
            .await
            .expect("a child that ends well");
    }
    assert_eq!(dispatched(&store).await, 500);
    assert_eq!(
        number(&store, "SELECT COUNT(*) AS value FROM posta_outbox").await,
        0
    );
    let tried = "SELECT COUNT(*) AS value FROM posta_dispatched WHERE attempts > 0";
    assert_eq!(number(&store, tried).await, 0);
}

#[tokio::test]
async fn a_process_that_dies_with_a_transaction_open_leaves_nothing_and_no_lock() {
    let (file, store) = SqliteFile::migrated().await;
    let mut process = Process::start("open", &file.path());
    assert_eq!(process.says().as_deref(), Some("open"));
    process.kill();
    let mut session = store.begin().await.unwrap();
    assert_eq!(store.backlog(&mut session).await.unwrap().rows, 0);
    Sqlite::insert_outbox(&mut session, store.tables(), &[message("k", 1)])
        .await
        .unwrap();
    session.commit().await.unwrap();
    assert_eq!(
        number(&store, "SELECT COUNT(*) AS value FROM posta_outbox").await,
        1
    );
}

#[tokio::test]
async fn what_a_process_committed_before_it_was_killed_is_there() {
    let (file, store) = SqliteFile::migrated().await;
    for round in 0..5 {
        let mut process = Process::start("commit", &file.path());
        let mut committed: Vec<String> = (0..10 + round * 7)
            .map(|_| process.says().expect("it goes on for ever"))
            .collect();
        process.kill();
        // What it said before the kill reached it.
        committed.extend(std::iter::from_fn(|| process.says()));
        let lanes: Vec<Slot> = Slot::all().collect();
        let mut session = store.begin().await.unwrap();
        let rows = store
            .pending(&mut session, &lanes, &[], 1_000_000)
            .await
            .unwrap();
        session.commit().await.unwrap();
        let there: HashSet<String> = rows
            .into_iter()
            .map(|row| row.message.unwrap().id.to_string())
            .collect();
        // A line that the kill cut short names no message.
        let lost: Vec<String> = committed
            .into_iter()
            .filter(|id| id.len() == 36 && !there.contains(id))
            .collect();
        assert!(lost.is_empty(), "{lost:?}");
    }
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = Text)]
        integrity_check: String,
    }
    let mut session = store.begin().await.unwrap();
    let rows: Vec<Row> = diesel::sql_query("PRAGMA integrity_check")
        .load(&mut *session)
        .await
        .unwrap();
    session.rollback().await;
    assert_eq!(rows[0].integrity_check, "ok");
}
