use std::error::Error as _;
use std::time::Instant;

use diesel::connection::SimpleConnection as _;
use diesel::{Connection as _, SqliteConnection};
use diesel_async::SimpleAsyncConnection as _;
use diesel_async::pooled_connection::ManagerConfig;
use diesel_async::pooled_connection::deadpool::Pool;
use posta::store::sqlite::{Connection, Manager};
use posta::store::{
    Connect, MigrationStore, OutboxStore, SqliteStore, Store, StoreError, StoreErrorKind,
};
use posta::{Database as _, Sqlite, Tables};

use super::child::message;
use crate::harness::sqlite::{SqliteFile, connect};

fn chain(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(&format!(": {error}"));
        source = error.source();
    }
    text
}

async fn refused(url: &str) -> StoreError {
    let store = SqliteStore::connect(url, &connect(Tables::default())).unwrap();
    let begun = Instant::now();
    let error = store.begin().await.map(|_| ()).unwrap_err();
    assert!(
        begun.elapsed() < connect(Tables::default()).timeout / 2,
        "it is told at once"
    );
    error
}

#[tokio::test]
async fn a_directory_that_is_missing_is_named() {
    let file = SqliteFile::absent();
    let directory = file.directory().join("missing");
    let error = refused(&format!("sqlite://{}/a.db", directory.display())).await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    let text = chain(&error);
    assert!(
        text.contains(&format!("there is no directory {directory:?}")),
        "{text}"
    );
}

#[tokio::test]
async fn a_directory_in_the_files_place_is_no_database() {
    let file = SqliteFile::absent();
    let error = refused(&file.directory().to_string_lossy()).await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(
        chain(&error).contains("unable to open"),
        "{}",
        chain(&error)
    );
}

#[tokio::test]
async fn a_file_of_another_kind_is_no_database() {
    let file = SqliteFile::absent();
    std::fs::write(
        file.path(),
        "This is a text, and a long one, which no database begins with.".repeat(99),
    )
    .unwrap();
    let error = refused(&file.url()).await;
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(
        chain(&error).contains("file is not a database"),
        "{}",
        chain(&error)
    );
    assert!(
        std::fs::read_to_string(file.path())
            .unwrap()
            .starts_with("This is a text")
    );
}

#[tokio::test]
async fn a_url_may_be_a_plain_path_or_have_its_scheme() {
    let (file, _store) = SqliteFile::migrated().await;
    let path = file.path();
    for url in [
        path.display().to_string(),
        format!("sqlite:{}", path.display()),
        format!("sqlite://{}", path.display()),
    ] {
        let store = SqliteStore::connect(&url, &connect(Tables::default())).unwrap();
        store.check_migrations().await.unwrap();
    }
}

#[tokio::test]
async fn a_connection_is_durable_and_checks_foreign_keys() {
    let (_file, store) = SqliteFile::migrated().await;
    let mut session = store.begin().await.unwrap();
    let settings = <Sqlite as crate::harness::database::TestDatabase>::texts(
        &mut session,
        "SELECT (SELECT journal_mode FROM pragma_journal_mode) || ' ' || (SELECT synchronous FROM pragma_synchronous)
             || ' ' || (SELECT foreign_keys FROM pragma_foreign_keys) AS value",
    )
    .await;
    session.rollback().await;
    // 2 is FULL.
    assert_eq!(settings, [Some("wal 2 1".to_owned())]);
}

/// A pool as an application has it, which says nothing but how to open.
fn pool(file: &SqliteFile) -> posta::store::DatabasePool<Sqlite> {
    let config = ManagerConfig::<Connection>::default();
    let manager = Manager::new_with_config(file.path().to_string_lossy(), config);
    Pool::builder(manager).max_size(3).build().unwrap()
}

#[tokio::test]
async fn the_applications_own_pool_serves_when_its_file_is_in_wal_mode() {
    let (file, store) = SqliteFile::migrated().await;
    let own = SqliteStore::with_pool(pool(&file), &connect(Tables::default()));
    own.check_migrations().await.unwrap();
    let other = file.store();
    // Its connections have no busy timeout; a writer of another process is waited for all the same.
    let held = writing(&file);
    let (begun, ()) = futures_util::future::join(own.begin(), async {
        tokio::task::yield_now().await;
        drop(held);
    })
    .await;
    let mut session = begun.unwrap();
    Sqlite::insert_outbox(&mut session, own.tables(), &[message("k", 1)])
        .await
        .unwrap();
    session.commit().await.unwrap();
    let mut session = other.begin().await.unwrap();
    assert_eq!(other.backlog(&mut session).await.unwrap().rows, 1);
    session.commit().await.unwrap();
    drop(store);
}

/// A connection that holds the write lock, as another process does.
fn writing(file: &SqliteFile) -> SqliteConnection {
    let mut connection = SqliteConnection::establish(&file.path().to_string_lossy()).unwrap();
    connection.batch_execute("BEGIN IMMEDIATE").unwrap();
    connection
}

#[tokio::test]
async fn a_pool_whose_file_is_not_in_wal_mode_is_refused_with_words() {
    let file = SqliteFile::absent();
    let own = SqliteStore::with_pool(pool(&file), &connect(Tables::default()));
    let error = own.begin().await.map(|_| ()).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Rejected);
    assert!(
        chain(&error).contains("PRAGMA journal_mode = WAL"),
        "{}",
        chain(&error)
    );
    // Once it is, the same store serves.
    let mut connection = pool(&file).get().await.unwrap();
    connection
        .batch_execute("PRAGMA journal_mode = WAL")
        .await
        .unwrap();
    own.migrate().await.unwrap();
}

#[tokio::test]
async fn a_pool_that_is_exhausted_is_an_outage_in_words() {
    let (file, _store) = SqliteFile::migrated().await;
    let short = Connect {
        connections_max: 1,
        timeout: std::time::Duration::from_secs(2),
        ..connect(Tables::default())
    };
    let store = SqliteStore::connect(&file.url(), &short).unwrap();
    let session = store.begin().await.unwrap();
    let error = store.check_migrations().await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(
        chain(&error).contains("in use for too long"),
        "{}",
        chain(&error)
    );
    session.rollback().await;
    store.check_migrations().await.unwrap();
}
