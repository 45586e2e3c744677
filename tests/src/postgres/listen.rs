use std::time::Duration;

use diesel_async::SimpleAsyncConnection;
use posta::store::{Connect, Database, OutboxStore, PostgresStore, Store};
use posta::{Postgres, Slot};

use super::keyed;
use crate::harness::postgres::{connect, migrated, number, store};

const TERMINATE: &str = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
    WHERE datname = current_database() AND query LIKE 'LISTEN%'";

/// Long enough for a wake-up that is there, short enough to wait for one that is not.
const MOMENT: Duration = Duration::from_millis(300);
/// Longer than any wake-up takes.
const LIMIT: Duration = Duration::from_secs(20);

async fn woken(store: &PostgresStore, within: Duration) -> bool {
    match tokio::time::timeout(within, store.notified()).await {
        Ok(result) => result.map(|()| true).expect("a listening connection"),
        Err(_) => false,
    }
}

/// F30
#[tokio::test]
async fn a_lost_listener_listens_again_and_says_that_it_may_have_missed_something() {
    let (guard, listener) = migrated().await;
    let other = store(&guard.url(), listener.tables().clone());
    assert!(woken(&listener, LIMIT).await, "it begins to listen");
    assert!(!woken(&listener, MOMENT).await, "nobody has said anything");
    other.notify().await.unwrap();
    other.notify().await.unwrap();
    assert!(woken(&listener, LIMIT).await);
    // Both may have come as one wake-up, or the second just after.
    while woken(&listener, MOMENT).await {}

    let mut admin = guard.connection().await;
    assert_eq!(number(&mut admin, TERMINATE).await, 1);
    assert!(
        woken(&listener, LIMIT).await,
        "something may have been missed"
    );
    assert!(!woken(&listener, MOMENT).await, "said once");
    other.notify().await.unwrap();
    assert!(woken(&listener, LIMIT).await, "and quick again");
}

#[tokio::test]
async fn a_wake_up_waits_for_a_listener_that_is_busy_elsewhere() {
    let (guard, listener) = migrated().await;
    let other = store(&guard.url(), listener.tables().clone());
    assert!(woken(&listener, LIMIT).await);
    assert!(!woken(&listener, MOMENT).await, "the wait is given up");
    other.notify().await.unwrap();
    assert!(woken(&listener, LIMIT).await);
}

#[tokio::test]
async fn stores_of_other_tables_do_not_wake_each_other() {
    let (guard, listener) = migrated().await;
    let stranger = store(&guard.url(), posta::Tables::default());
    assert!(woken(&listener, LIMIT).await);
    stranger.notify().await.unwrap();
    assert!(!woken(&listener, MOMENT).await);
}

/// F30: the size of a message is no matter of the wake-up's.
#[tokio::test]
async fn a_large_message_is_committed_with_its_wake_up() {
    let (_guard, store) = migrated().await;
    let mut session = store.begin().await.unwrap();
    let large = [keyed("k", &"x".repeat(20_000))];
    Postgres::insert_outbox(&mut session, store.tables(), &large)
        .await
        .unwrap();
    session.commit().await.unwrap();
    store.notify().await.unwrap();
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut session = store.begin().await.unwrap();
    let rows = store.pending(&mut session, &lanes, &[], 10).await.unwrap();
    assert_eq!(rows[0].message.as_ref().unwrap().payload.len(), 20_000);
    session.batch_execute("SELECT 1").await.unwrap();
    session.rollback().await;
}

#[tokio::test]
async fn nobody_listens_behind_a_pooler() {
    let (guard, direct) = migrated().await;
    let connect = Connect {
        transaction_pooler: true,
        ..connect(direct.tables().clone())
    };
    let pooled = PostgresStore::connect(&guard.pooled_url(), &connect).unwrap();
    assert!(woken(&direct, LIMIT).await);
    assert!(!woken(&pooled, MOMENT).await);
    pooled.notify().await.unwrap();
    assert!(woken(&direct, LIMIT).await, "but what it says is heard");
    assert!(!woken(&pooled, MOMENT).await);
}
