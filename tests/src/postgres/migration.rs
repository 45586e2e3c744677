use diesel_async::AsyncPgConnection;
use futures_util::future::join_all;
use posta::Tables;
use posta::store::{MigrationStore, Store, StoreErrorKind};

use super::chain;
use crate::harness::postgres::{fresh, migrated, number, run, store, variable};

#[tokio::test]
async fn three_processes_migrate_at_once() {
    let (url, tables, _guard) = fresh().await;
    let stores: Vec<_> = (0..3).map(|_| store(&url, tables.clone())).collect();
    let ran = join_all(stores.iter().map(|store| store.migrate())).await;
    let ran: Vec<_> = ran.into_iter().map(|ran| ran.unwrap()).collect();
    assert_eq!(
        ran.iter().filter(|ran| !ran.is_empty()).count(),
        1,
        "{ran:?}"
    );
    for store in &stores {
        store.check_migrations().await.unwrap();
    }
}

#[tokio::test]
async fn missing_tables_say_what_to_do() {
    let (url, tables, _guard) = fresh().await;
    let store = store(&url, tables);
    let error = store
        .check_migrations()
        .await
        .expect_err("there are no tables");
    assert_eq!(error.kind(), StoreErrorKind::Schema);
    assert!(
        chain(&error).contains("run posta's migrations"),
        "{}",
        chain(&error)
    );
    use posta::store::OutboxStore;
    let mut session = store.begin().await.unwrap();
    let error = store
        .backlog(&mut session)
        .await
        .expect_err("there are no tables");
    assert_eq!(error.kind(), StoreErrorKind::Schema);
    session.rollback().await;
}

#[tokio::test]
async fn a_version_of_another_content_is_refused_and_a_newer_one_is_not() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    let newer = format!("INSERT INTO {name}.migration VALUES (999, 'later', 'x')");
    run(&guard.url(), &newer).await;
    store.check_migrations().await.unwrap();
    assert_eq!(store.migrate().await.unwrap(), []);
    run(
        &guard.url(),
        &format!("UPDATE {name}.migration SET checksum = 'x' WHERE version = 1"),
    )
    .await;
    let error = store.check_migrations().await.expect_err("other contents");
    assert_eq!(error.kind(), StoreErrorKind::Schema);
}

/// The right to create schemas is not needed where somebody has made the schema.
#[tokio::test]
async fn a_user_with_a_schema_of_its_own_and_no_more_can_migrate() {
    let (url, tables, guard) = fresh().await;
    let role = format!("r{}", tables.name());
    let schema = tables.name();
    run(
        &url,
        &format!(
            "CREATE ROLE {role} LOGIN PASSWORD 'p'; CREATE SCHEMA {schema} AUTHORIZATION {role}"
        ),
    )
    .await;
    let (_, address) = url.split_once('@').expect("the URL has a login");
    let own = format!("postgres://{role}:p@{address}");
    let migrated = store(&own, tables.clone()).migrate().await;
    let elsewhere = store(&own, Tables::default()).migrate().await;
    run(&url, &format!("DROP OWNED BY {role} CASCADE")).await;
    run(
        &variable("POSTA_TEST_POSTGRES"),
        &format!("DROP ROLE {role}"),
    )
    .await;
    let migrated = migrated.unwrap_or_else(|error| panic!("{}", chain(&error)));
    let migrations = concat!(env!("CARGO_MANIFEST_DIR"), "/../migrations/postgres");
    let all = std::fs::read_dir(migrations).expect("the migrations");
    assert_eq!(migrated.len(), all.count());
    assert_eq!(
        elsewhere.expect_err("it may not").kind(),
        StoreErrorKind::Rejected
    );
    drop(guard);
}

#[tokio::test]
async fn the_applications_own_tables_are_untouched() {
    let (guard, store) = migrated().await;
    let mut connection: AsyncPgConnection = guard.connection().await;
    let elsewhere = format!(
        "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
         WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('{}', 'pg_catalog', 'information_schema')",
        store.tables().name()
    );
    assert_eq!(number(&mut connection, &elsewhere).await, 0);
}
