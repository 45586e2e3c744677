use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use futures_util::future::{join_all, try_join_all};
use posta::store::{Connect, Database, OutboxStore, PostgresStore, Session, Store, StoreErrorKind};
use posta::{Postgres, Slot};

use super::{becomes, chain, keyed};
use crate::harness::postgres::{connect, migrated, number, run, store};

const IDLE_IN_TRANSACTION: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state LIKE 'idle in transaction%'";

/// Polls a future this many times, then drops it; `true` if it came to its end before.
async fn polled(future: impl Future<Output = ()>, polls: usize) -> bool {
    let mut future = pin!(future);
    let mut left = polls;
    std::future::poll_fn(|cx| {
        left -= 1;
        match future.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if left == 0 => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

/// F27
#[tokio::test]
async fn a_transaction_that_is_dropped_at_any_poll_leaves_nothing_behind() {
    let (guard, other) = migrated().await;
    let connect = Connect {
        connections_max: 1,
        ..connect(other.tables().clone())
    };
    let store = PostgresStore::connect(&guard.url(), &connect).unwrap();
    let mut reader = guard.connection().await;
    let rows = format!("SELECT count(*) FROM {}.outbox", store.tables().name());
    let mut committed = 0;
    let mut ended = 0;
    for polls in 1..=20 {
        let whole = async {
            let mut session = store.begin().await.unwrap();
            let envelopes = [keyed("k", "dropped")];
            Postgres::insert_outbox(&mut session, store.tables(), &envelopes)
                .await
                .unwrap();
            session.commit().await.unwrap();
        };
        ended += usize::from(polled(whole, polls).await);

        let mut session = store.begin().await.unwrap();
        let envelopes = [keyed("k", "kept")];
        Postgres::insert_outbox(&mut session, store.tables(), &envelopes)
            .await
            .unwrap();
        session.commit().await.unwrap();
        committed += 1;
        let kept = format!("{rows} WHERE payload = 'kept'");
        assert_eq!(
            number(&mut reader, &kept).await,
            committed,
            "after {polls} polls"
        );
    }
    assert!(
        (1..20).contains(&ended),
        "{ended} of 20 came to their end: too few or too many polls"
    );
    becomes(&mut reader, IDLE_IN_TRANSACTION, 0).await;
}

/// F29
#[tokio::test]
async fn the_databases_default_isolation_is_of_no_matter() {
    let (guard, first) = migrated().await;
    let serializable = "SET default_transaction_isolation = 'serializable'";
    run(
        &guard.url(),
        &format!("ALTER DATABASE {} {serializable}", guard.name()),
    )
    .await;
    let stores: Vec<_> = (0..4)
        .map(|_| store(&guard.url(), first.tables().clone()))
        .collect();
    let lanes: Vec<Slot> = Slot::all().collect();
    let work = |store: PostgresStore, name: usize| {
        let lanes = lanes.clone();
        async move {
            for n in 0..25 {
                let mut session = store.begin().await?;
                let envelopes = [keyed(&format!("k{}", n % 8), &format!("{name}"))];
                Postgres::insert_outbox(&mut session, store.tables(), &envelopes).await?;
                store.pending(&mut session, &lanes, &[], 100).await?;
                session.commit().await?;
            }
            Ok::<_, posta::store::StoreError>(())
        }
    };
    let all = stores
        .iter()
        .cloned()
        .enumerate()
        .map(|(name, store)| work(store, name));
    try_join_all(all)
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    let mut session = stores[0].begin().await.unwrap();
    assert_eq!(
        stores[0]
            .pending(&mut session, &lanes, &[], 1000)
            .await
            .unwrap()
            .len(),
        100
    );
    session.rollback().await;
}

async fn sessions(store: &PostgresStore, count: usize) -> Vec<Session<Postgres>> {
    let begun = join_all((0..count).map(|_| store.begin())).await;
    begun
        .into_iter()
        .map(|session| session.expect("a transaction begins"))
        .collect()
}

#[tokio::test]
async fn pooled_connections_whose_backends_are_gone_are_replaced() {
    let (guard, store) = migrated().await;
    for session in sessions(&store, 8).await {
        session.commit().await.unwrap();
    }
    let mut other = guard.connection().await;
    let terminated = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert_eq!(number(&mut other, terminated).await, 8);
    for session in sessions(&store, 8).await {
        session.commit().await.unwrap();
    }
}

#[tokio::test]
async fn a_transaction_whose_backend_goes_away_says_unavailable_and_gives_nothing_back() {
    let (guard, store) = migrated().await;
    let mut session = store.begin().await.unwrap();
    let mut other = guard.connection().await;
    let terminated = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
        WHERE datname = current_database() AND state = 'idle in transaction'";
    assert_eq!(number(&mut other, terminated).await, 1);
    let error = store
        .backlog(&mut session)
        .await
        .expect_err("the backend is gone");
    assert_eq!(
        error.kind(),
        StoreErrorKind::Unavailable,
        "{}",
        chain(&error)
    );
    session.rollback().await;
    store.begin().await.unwrap().commit().await.unwrap();
}

/// A connection to what has become a standby is as good as none.
#[tokio::test]
async fn a_connection_that_takes_no_writes_any_more_is_replaced() {
    let (guard, other) = migrated().await;
    let connect = Connect {
        connections_max: 1,
        ..connect(other.tables().clone())
    };
    let store = PostgresStore::connect(&guard.url(), &connect).unwrap();
    let read_only = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY";

    // Found by the first statement of Posta's that writes.
    let mut session = store.begin().await.unwrap();
    session.batch_execute(read_only).await.unwrap();
    session.commit().await.unwrap();
    let mut session = store.begin().await.unwrap();
    let envelopes = [keyed("k", "")];
    let insert = Postgres::insert_outbox(&mut session, store.tables(), &envelopes).await;
    assert_eq!(
        insert.expect_err("nothing is written").kind(),
        StoreErrorKind::Unavailable
    );
    session.rollback().await;
    let mut session = store.begin().await.unwrap();
    Postgres::insert_outbox(&mut session, store.tables(), &envelopes)
        .await
        .unwrap();

    // Found by looking, where only the application's statements write.
    session.batch_execute(read_only).await.unwrap();
    session.commit().await.unwrap();
    let mut found = false;
    for _ in 0..20 {
        let mut session = store.begin().await.unwrap();
        let connection: &mut AsyncPgConnection = &mut session;
        let writable = "SELECT (current_setting('transaction_read_only') = 'off')::int";
        found = number(connection, writable).await == 1;
        session.rollback().await;
        if found {
            break;
        }
    }
    assert!(found, "the connection was never replaced");
}

#[tokio::test]
async fn a_server_that_takes_no_writes_is_unavailable_until_it_does() {
    let (guard, first) = migrated().await;
    let alter = |what: &str| format!("ALTER DATABASE {} {what}", guard.name());
    let admin = crate::harness::postgres::variable("POSTA_TEST_POSTGRES");
    run(&admin, &alter("SET default_transaction_read_only = on")).await;
    let store = store(&guard.url(), first.tables().clone());
    let error = store.begin().await.expect_err("a read-only server");
    assert_eq!(
        error.kind(),
        StoreErrorKind::Unavailable,
        "{}",
        chain(&error)
    );
    run(&admin, &alter("RESET default_transaction_read_only")).await;
    store.begin().await.unwrap().commit().await.unwrap();
}

#[tokio::test]
async fn deadlocks_and_waits_that_end_are_contention() {
    let (guard, store) = migrated().await;
    run(
        &guard.url(),
        "CREATE TABLE t (n int PRIMARY KEY); INSERT INTO t VALUES (1), (2)",
    )
    .await;
    let update = |n: i32| format!("UPDATE t SET n = n WHERE n = {n}");
    let mut a = store.begin().await.unwrap();
    let mut b = store.begin().await.unwrap();
    a.batch_execute(&update(1)).await.unwrap();
    b.batch_execute(&update(2)).await.unwrap();
    let (first, second) = (update(2), update(1));
    let both = futures_util::join!(a.batch_execute(&first), b.batch_execute(&second));
    let error = both
        .0
        .err()
        .or(both.1.err())
        .expect("one of them is the victim");
    assert_eq!(
        Postgres::classify(&error),
        StoreErrorKind::Contention,
        "{error}"
    );
    a.rollback().await;
    b.rollback().await;

    let mut a = store.begin().await.unwrap();
    let mut b = store.begin().await.unwrap();
    a.batch_execute(&update(1)).await.unwrap();
    let error = b
        .batch_execute(&format!("SET LOCAL lock_timeout = 1; {}", update(1)))
        .await;
    let error = error.expect_err("the row is locked");
    assert_eq!(
        Postgres::classify(&error),
        StoreErrorKind::Contention,
        "{error}"
    );
    b.rollback().await;
    let mut b = store.begin().await.unwrap();
    let error = b
        .batch_execute("SELECT 1 FROM t WHERE n = 1 FOR UPDATE NOWAIT")
        .await;
    let error = error.expect_err("the row is locked");
    assert_eq!(
        Postgres::classify(&error),
        StoreErrorKind::Contention,
        "{error}"
    );
    let mut c = store.begin().await.unwrap();
    let error = c
        .batch_execute("SET LOCAL statement_timeout = 1; SELECT pg_sleep(9)")
        .await;
    let error = error.expect_err("it takes too long");
    assert_eq!(
        Postgres::classify(&error),
        StoreErrorKind::Unavailable,
        "{error}"
    );
}
