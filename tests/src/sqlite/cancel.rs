use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use diesel::connection::SimpleConnection as _;
use diesel::{Connection as _, SqliteConnection};
use diesel_async::RunQueryDsl as _;
use posta::store::{Connect, OutboxStore, SqliteStore, Store, StoreError};
use posta::{Database as _, Slot, Sqlite, Tables};

use super::child::message;
use crate::harness::sqlite::{SqliteFile, connect};

/// A future that is dropped after so many polls, if it is not ready before.
struct Polls<F> {
    future: F,
    left: usize,
}

impl<F: Future + Unpin> Future for Polls<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        let ended = Pin::new(&mut self.future).poll(cx).map(Some);
        if ended.is_pending() && self.left == 0 {
            return Poll::Ready(None);
        }
        ended
    }
}

async fn dropped_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    Polls {
        future: pin!(future),
        left: polls,
    }
    .await
}

/// Whether a connection that waits for nothing can write now.
fn nobody_writes(file: &SqliteFile) -> bool {
    let mut connection = SqliteConnection::establish(&file.path().to_string_lossy()).unwrap();
    connection
        .batch_execute("PRAGMA busy_timeout = 0; BEGIN IMMEDIATE; ROLLBACK")
        .is_ok()
}

fn one_connection(file: &SqliteFile) -> SqliteStore {
    let connect = Connect {
        connections_max: 1,
        ..connect(Tables::default())
    };
    SqliteStore::connect(&file.url(), &connect).unwrap()
}

/// Case: a dropped future returns a connection with an open transaction, and later writes are never
/// committed.
#[tokio::test]
async fn a_transaction_that_is_dropped_after_any_poll_leaves_nothing_behind() {
    let (file, other) = SqliteFile::migrated().await;
    let store = one_connection(&file);
    let lanes: Vec<Slot> = Slot::all().collect();
    let (mut cancelled, mut rows) = (0, 0);
    for polls in 1..=20 {
        let work = async {
            let mut session = store.begin().await?;
            for _ in 0..10 {
                store.pending(&mut session, &lanes, &[], 10).await?;
                let envelopes = [message("k", 1), message("k", 2)];
                Sqlite::insert_outbox(&mut session, store.tables(), &envelopes).await?;
            }
            session.commit().await?;
            Ok::<(), StoreError>(())
        };
        let ended = dropped_after(polls, work).await;
        assert!(nobody_writes(&file), "after {polls} polls");
        let before = rows;
        rows = count(&other).await;
        match ended {
            Some(ended) => {
                ended.unwrap();
                assert_eq!(rows, before + 20);
            }
            // A commit whose future is dropped may have been done: all rows, or none.
            None => {
                cancelled += 1;
                assert!(
                    rows == before || rows == before + 20,
                    "{rows} after {before}"
                );
            }
        }
        // The pool's only connection serves, and what it writes is seen by others.
        let mut session = store.begin().await.unwrap();
        Sqlite::insert_outbox(&mut session, store.tables(), &[message("l", 3)])
            .await
            .unwrap();
        session.commit().await.unwrap();
        rows += 1;
        assert_eq!(count(&other).await, rows);
    }
    assert!(
        cancelled >= 5,
        "the work took polls enough to be cancelled in: {cancelled}"
    );
}

async fn count(store: &SqliteStore) -> u64 {
    let mut session = store.begin().await.unwrap();
    let rows = store.backlog(&mut session).await.unwrap().rows;
    session.commit().await.unwrap();
    rows
}

/// The application's own statements are cancelled like Posta's.
#[tokio::test]
async fn a_slow_statement_that_is_dropped_has_ended_when_the_drop_returns() {
    let (file, store) = SqliteFile::migrated().await;
    let slow = "WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 300000)
                INSERT INTO posta_outbox (message_type, payload) SELECT 'a', CAST(n AS BLOB) FROM n WHERE n % 1000 = 0";
    let mut session = store.begin().await.unwrap();
    let ended = dropped_after(1, diesel::sql_query(slow).execute(&mut *session)).await;
    assert!(ended.is_none(), "it is still running");
    assert!(!nobody_writes(&file));
    drop(session);
    assert!(nobody_writes(&file));
    assert_eq!(count(&store).await, 0);
}
