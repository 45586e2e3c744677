use std::time::Duration;

use futures_util::poll;
use posta::store::{LeaseStore, MemberId, OutboxStore, Resource, SqliteStore, Store};
use posta::{Database as _, Slot, Sqlite};

use super::child::{Process, message};
use crate::harness::sqlite::SqliteFile;

async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), future)
        .await
        .expect("it is noticed")
}

async fn enqueue(store: &SqliteStore) {
    let mut session = store.begin().await.unwrap();
    Sqlite::insert_outbox(&mut session, store.tables(), &[message("k", 1)])
        .await
        .unwrap();
    session.commit().await.unwrap();
}

#[tokio::test]
async fn a_commit_of_another_store_is_noticed_and_nothing_else_is() {
    let (file, store) = SqliteFile::migrated().await;
    let other = file.store();
    // A change before the first call may have gone unseen.
    in_time(store.notified()).await.unwrap();
    for _ in 0..3 {
        let mut notified = Box::pin(store.notified());
        assert!(poll!(&mut notified).is_pending());
        // What only reads, or is rolled back, is no change; looking at what is pending must not
        // wake the one who looks.
        let lanes: Vec<Slot> = Slot::all().collect();
        for _ in 0..5 {
            let mut session = other.begin().await.unwrap();
            other.pending(&mut session, &lanes, &[], 10).await.unwrap();
            session.commit().await.unwrap();
            let mut session = other.begin().await.unwrap();
            let (member, ttl) = (MemberId::random(), Duration::from_secs(9));
            other
                .join(&mut session, &Resource::Lanes, 64, member, ttl)
                .await
                .unwrap();
            session.rollback().await;
            tokio::time::sleep(Duration::from_millis(30)).await;
            assert!(poll!(&mut notified).is_pending());
        }
        enqueue(&other).await;
        other.notify().await.unwrap();
        in_time(notified).await.unwrap();
    }
}

#[tokio::test]
async fn a_commit_of_another_process_is_noticed() {
    let (file, store) = SqliteFile::migrated().await;
    in_time(store.notified()).await.unwrap();
    let mut notified = Box::pin(store.notified());
    assert!(poll!(&mut notified).is_pending());
    let mut process = Process::start("commit", &file.path());
    in_time(notified).await.unwrap();
    process.kill();
}
