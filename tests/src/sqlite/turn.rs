use std::time::Duration;

use futures_util::poll;
use posta::Tables;
use posta::store::{Connect, MigrationStore, SqliteStore, Store, StoreErrorKind};

use crate::harness::sqlite::{SqliteFile, connect};

#[tokio::test]
async fn stores_of_one_process_take_turns_in_the_order_in_which_they_asked() {
    let (file, first) = SqliteFile::migrated().await;
    let second = file.store();
    // The second knows its file from its first transaction on.
    second.begin().await.unwrap().rollback().await;
    let session = first.begin().await.unwrap();
    let mut waiting = Box::pin(second.begin());
    let mut later = Box::pin(first.begin());
    assert!(poll!(&mut waiting).is_pending());
    assert!(poll!(&mut later).is_pending());
    session.commit().await.unwrap();
    let (order, ended) = tokio::sync::mpsc::unbounded_channel();
    let take = async |begin, name: &'static str| {
        let session: Result<posta::store::Session<posta::Sqlite>, _> = begin;
        order.send(name).unwrap();
        session.unwrap().commit().await.unwrap();
    };
    futures_util::future::join(async { take(later.await, "later").await }, async {
        take(waiting.await, "waiting").await
    })
    .await;
    drop(order);
    let mut ended = ended;
    assert_eq!(
        (ended.recv().await, ended.recv().await),
        (Some("waiting"), Some("later"))
    );
}

#[tokio::test]
async fn a_turn_that_does_not_come_in_time_is_contention() {
    let (file, store) = SqliteFile::migrated().await;
    let connect = Connect {
        timeout: Duration::from_secs(2),
        ..connect(Tables::default())
    };
    let impatient = SqliteStore::connect(&file.url(), &connect).unwrap();
    impatient.check_migrations().await.unwrap();
    let session = store.begin().await.unwrap();
    let error = impatient.begin().await.map(|_| ()).unwrap_err();
    assert_eq!(
        (error.kind(), error.is_transient()),
        (StoreErrorKind::Contention, true)
    );
    session.rollback().await;
    impatient.begin().await.unwrap().commit().await.unwrap();
}

#[tokio::test]
async fn a_lock_of_another_process_that_is_not_had_in_time_is_contention() {
    use diesel::Connection as _;
    use diesel::connection::SimpleConnection as _;
    let (file, _store) = SqliteFile::migrated().await;
    let connect = Connect {
        timeout: Duration::from_secs(2),
        ..connect(Tables::default())
    };
    let impatient = SqliteStore::connect(&file.url(), &connect).unwrap();
    let mut other = diesel::SqliteConnection::establish(&file.path().to_string_lossy()).unwrap();
    other.batch_execute("BEGIN IMMEDIATE").unwrap();
    let error = impatient.begin().await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Contention);
    other.batch_execute("ROLLBACK").unwrap();
    impatient.begin().await.unwrap().commit().await.unwrap();
}
