use std::time::{Duration, Instant};

use diesel_async::AsyncPgConnection;
use posta::Tables;
use posta::store::{Connect, PostgresStore, Store, StoreErrorKind};
use tokio::net::TcpListener;

use super::chain;
use crate::harness::postgres::{connect, migrated, number, store, variable};

#[tokio::test]
async fn what_only_another_url_can_mend_is_a_refusal_that_keeps_the_password() {
    let url = variable("POSTA_TEST_POSTGRES");
    let (login, address) = url.split_once('@').expect("the URL has a login");
    let (server, _) = address.split_once('/').expect("the URL has a database");
    let (_, password) = login.rsplit_once(':').expect("the login has a password");
    for (url, why) in [
        (
            format!("{login}x@{address}"),
            "password authentication failed",
        ),
        (
            format!("{login}@{server}/no_such_database"),
            "does not exist",
        ),
    ] {
        let error = store(&url, Tables::default())
            .begin()
            .await
            .expect_err("nobody to talk to");
        assert_eq!(error.kind(), StoreErrorKind::Rejected);
        let text = format!("{} {error:?}", chain(&error));
        assert!(text.contains(why) && !text.contains(password), "{text}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable() {
    let free = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("postgres://u:p@{free}/d");
    let error = store(&url, Tables::default())
        .begin()
        .await
        .expect_err("nobody listens");
    assert_eq!(
        error.kind(),
        StoreErrorKind::Unavailable,
        "{}",
        chain(&error)
    );
}

#[tokio::test]
async fn a_server_that_never_answers_is_unavailable_in_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://u:p@{}/d", silent.local_addr().unwrap());
    let connect = Connect {
        timeout: Duration::from_millis(200),
        ..connect(Tables::default())
    };
    let begun = Instant::now();
    let store = PostgresStore::connect(&url, &connect).unwrap();
    let error = store.begin().await.expect_err("no answer");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn a_pool_without_a_free_connection_is_unavailable_in_time() {
    let (guard, _) = migrated().await;
    let connect = Connect {
        connections_max: 1,
        timeout: Duration::from_secs(3),
        ..connect(Tables::default())
    };
    let store = PostgresStore::connect(&guard.url(), &connect).unwrap();
    let session = store
        .begin()
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    let error = store
        .begin()
        .await
        .expect_err("the only connection is taken");
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    session.rollback().await;
    store.begin().await.unwrap().rollback().await;
}

#[tokio::test]
async fn a_connection_says_whose_it_is_unless_the_url_does() {
    let (guard, _) = migrated().await;
    for (parameters, name) in [("", "posta"), ("?application_name=shop", "shop")] {
        let store = store(&format!("{}{parameters}", guard.url()), Tables::default());
        let mut session = store.begin().await.unwrap();
        let connection: &mut AsyncPgConnection = &mut session;
        let named = format!("SELECT (current_setting('application_name') = '{name}')::int");
        assert_eq!(number(connection, &named).await, 1);
        session.rollback().await;
    }
}

#[tokio::test]
async fn the_applications_own_pool_serves_as_well() {
    use diesel_async::pooled_connection::AsyncDieselConnectionManager;
    use diesel_async::pooled_connection::deadpool::Pool;

    let (guard, migrated) = migrated().await;
    let manager = AsyncDieselConnectionManager::<AsyncPgConnection>::new(guard.url());
    let pool = Pool::builder(manager).max_size(2).build().unwrap();
    let store = PostgresStore::with_pool(pool.clone(), &connect(migrated.tables().clone()));
    let session = store.begin().await.unwrap();
    assert_eq!(pool.status().size, 1);
    session.commit().await.unwrap();
    assert_eq!(pool.status().available, 1);
    // A wake-up arrives by a connection of its own.
    store.notified().await.unwrap();
    migrated.notify().await.unwrap();
    store.notified().await.unwrap();
    assert_eq!(pool.status().size, 1);
}
