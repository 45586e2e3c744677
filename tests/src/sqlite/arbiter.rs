use futures_util::FutureExt as _;
use posta::store::{OutboxStore, SqliteStore, Store};
use posta::{Database as _, Sqlite};

use super::child::message;
use crate::harness::sqlite::SqliteFile;

async fn enqueue(store: SqliteStore) {
    let mut session = store.begin().await.unwrap();
    Sqlite::insert_outbox(&mut session, store.tables(), &[message("k", 1)])
        .await
        .unwrap();
    session.commit().await.unwrap();
}

/// A pool outlives the arbiter on which its connections were made.
#[test]
fn a_connection_that_was_made_on_an_arbiter_serves_when_that_has_ended() {
    actix::System::new().block_on(async {
        let (_file, store) = SqliteFile::migrated().await;
        for _ in 0..3 {
            let arbiter = actix::Arbiter::new();
            let (done, end) = tokio::sync::oneshot::channel();
            let its_store = store.clone();
            arbiter.spawn(async move {
                enqueue(its_store).await;
                done.send(()).unwrap();
            });
            end.await.unwrap();
            arbiter.stop();
            arbiter.join().unwrap();
            enqueue(store.clone()).await;
        }
        let mut session = store.begin().await.unwrap();
        assert_eq!(store.backlog(&mut session).await.unwrap().rows, 6);
        session.commit().await.unwrap();
    });
}

/// An arbiter is a single-threaded runtime, where a drop must not ask for more threads.
#[test]
fn a_transaction_that_is_dropped_on_an_arbiter_takes_nothing_with_it() {
    actix::System::new().block_on(async {
        let (_file, store) = SqliteFile::migrated().await;
        for _ in 0..20 {
            let mut session = store.begin().await.unwrap();
            let envelopes = [message("k", 1)];
            // Polled once: the statement runs, its answer is not waited for.
            let insert = Sqlite::insert_outbox(&mut session, store.tables(), &envelopes);
            assert!(
                insert
                    .now_or_never()
                    .is_none_or(|inserted| inserted.is_ok())
            );
            drop(session);
        }
        enqueue(store.clone()).await;
        let mut session = store.begin().await.unwrap();
        assert_eq!(store.backlog(&mut session).await.unwrap().rows, 1);
        session.commit().await.unwrap();
    });
}
