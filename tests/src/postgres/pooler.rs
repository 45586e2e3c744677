//! PgBouncer in transaction mode: each transaction may run on another server connection.

use std::process::Command;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use posta::layout::Generation;
use posta::store::{
    Connect, Database, DeadLetterStore, Fence, InboxStore, LeaseStore, LetterChange, LetterState,
    MemberId, MigrationStore, Origin, OutboxStore, PostgresStore, Resource, RetryStore, RowId,
    Store, StoreError,
};
use posta::{MessageId, Postgres, Slot, Tables};

use super::{chain, keyed};
use crate::harness::postgres::{connect, fresh, number};

const TTL: Duration = Duration::from_secs(600);

fn pooled(url: &str, tables: &Tables, transaction_pooler: bool) -> PostgresStore {
    let connect = Connect {
        transaction_pooler,
        ..connect(tables.clone())
    };
    PostgresStore::connect(url, &connect).unwrap()
}

/// One process's share: transactions with several statements, some of them pipelined, some of them
/// failing, on all its connections at once.
async fn work(store: &PostgresStore, consumer: &str, rounds: usize) -> Result<(), StoreError> {
    let resource = Resource::partitions(consumer, Generation::first(4));
    let member = MemberId::random();
    let mut session = store.begin().await?;
    store.join(&mut session, &resource, 1, member, TTL).await?;
    let grants = store
        .acquire(&mut session, &resource, 1, member, TTL, 1)
        .await?;
    session.commit().await?;
    let fence = Fence {
        resource,
        owner: member,
        grant: grants[0],
    };
    let lanes: Vec<Slot> = Slot::all().collect();
    let one = async |number: usize| {
        for _ in 0..rounds {
            let mut session = store.begin().await?;
            let ids = [MessageId::new()];
            let _ = store
                .admit(&mut session, consumer, &fence, &ids, &[])
                .await?;
            let envelopes = [keyed(&format!("k{number}"), consumer)];
            Postgres::insert_outbox(&mut session, store.tables(), &envelopes).await?;
            session.commit().await?;

            let mut session = store.begin().await?;
            store.pending(&mut session, &lanes, &[], 10).await?;
            // The same id again: the statement fails, and what was prepared for it must not stay on
            // the server's connection.
            let twice = [envelopes[0].clone(), envelopes[0].clone()];
            let refused = Postgres::insert_outbox(&mut session, store.tables(), &twice).await;
            assert!(refused.is_err());
            session.rollback().await;
        }
        Ok::<_, StoreError>(())
    };
    try_join_all((0..8).map(one)).await.map(drop)
}

#[tokio::test]
async fn two_stores_share_a_pooler() {
    let (_, tables, guard) = fresh().await;
    let stores = [(); 2].map(|()| pooled(&guard.pooled_url(), &tables, true));
    stores[0]
        .migrate()
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    stores[1].check_migrations().await.unwrap();
    let both = stores
        .iter()
        .zip(["a", "b"])
        .map(|(store, consumer)| work(store, consumer, 20));
    try_join_all(both)
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));

    let mut session = stores[0].begin().await.unwrap();
    let rows = format!("SELECT count(*) FROM {}.outbox", tables.name());
    assert_eq!(number(&mut session, &rows).await, 2 * 8 * 20);
    session.rollback().await;
    no_statement_is_left_on_any_server_connection(&stores[0]).await;
}

/// Looks at several server connections at once, by a transaction on each.
async fn no_statement_is_left_on_any_server_connection(store: &PostgresStore) {
    let mut sessions = Vec::new();
    for _ in 0..8 {
        let mut session = store.begin().await.unwrap();
        // The one that asks is there itself.
        let others = "SELECT count(*) FROM pg_prepared_statements
            WHERE statement NOT LIKE '%pg_prepared_statements%'";
        assert_eq!(number(&mut session, others).await, 0);
        sessions.push(session);
    }
    for session in sessions {
        session.rollback().await;
    }
}

/// Every process names its statements from `s0` on; so two of them meet each other's names on the
/// server connections.
#[tokio::test]
async fn two_processes_share_a_pooler() {
    let (url, tables, guard) = fresh().await;
    crate::harness::postgres::store(&url, tables.clone())
        .migrate()
        .await
        .unwrap();
    let child = |consumer: &str| {
        let name = "postgres::pooler::run_when_asked";
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.args([name, "--exact", "--nocapture"]).env(
            CHILD,
            format!("{} {} {consumer}", guard.pooled_url(), tables.name()),
        );
        tokio::task::spawn_blocking(move || command.output())
    };
    for child in join_all([child("a"), child("b")]).await {
        let output = child.unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains(DONE), "{said}");
    }
}

const CHILD: &str = "POSTA_TEST_POOLER_CHILD";
const DONE: &str = "the work is done";

/// The child's side. As a test of its own it does nothing.
#[tokio::test]
async fn run_when_asked() {
    let Ok(asked) = std::env::var(CHILD) else {
        return;
    };
    let [url, tables, consumer] = asked.split(' ').collect::<Vec<_>>()[..] else {
        panic!("not what is expected: {asked}");
    };
    let store = pooled(url, &Tables::named(tables).unwrap(), true);
    work(&store, consumer, 30)
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    println!("{DONE}");
}

#[tokio::test]
async fn a_settle_works_through_a_pooler_like_directly() {
    let (url, tables, guard) = fresh().await;
    let direct = crate::harness::postgres::store(&url, tables.clone());
    direct.migrate().await.unwrap();
    let store = pooled(&guard.pooled_url(), &tables, true);
    let member = MemberId::random();
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut session = store.begin().await.unwrap();
    store
        .join(&mut session, &Resource::Lanes, 64, member, TTL)
        .await
        .unwrap();
    let grants = store
        .acquire(&mut session, &Resource::Lanes, 64, member, TTL, 64)
        .await
        .unwrap();
    let fences: Vec<Fence> = grants
        .into_iter()
        .map(|grant| Fence {
            resource: Resource::Lanes,
            owner: member,
            grant,
        })
        .collect();
    let envelopes: Vec<_> = (0..50).map(|n| keyed(&format!("k{n}"), "")).collect();
    Postgres::insert_outbox(&mut session, &tables, &envelopes)
        .await
        .unwrap();
    session.commit().await.unwrap();
    let mut session = store.begin().await.unwrap();
    let rows = store.pending(&mut session, &lanes, &[], 100).await.unwrap();
    let ids: Vec<RowId> = rows.iter().map(|row| row.id).collect();
    assert_eq!(
        store
            .mark_dispatched(&mut session, &fences, &ids)
            .await
            .unwrap()
            .len(),
        50
    );
    session.commit().await.unwrap();
}

/// Kept statements behind such a pooler are lost or met by others; the error says what to do.
#[tokio::test]
async fn a_pooler_that_nobody_told_of_is_asked_about() {
    let (url, tables, guard) = fresh().await;
    crate::harness::postgres::store(&url, tables.clone())
        .migrate()
        .await
        .unwrap();
    let store = pooled(&guard.pooled_url(), &tables, false);
    for _ in 0..20 {
        if let Err(error) = work(&store, "c", 5).await {
            let text = chain(&error);
            assert!(text.contains("transaction_pooler"), "{text}");
            return;
        }
    }
    panic!("statements that are kept prepared were never missed");
}

/// Every statement about what fails, each prepared and closed within its transaction.
#[tokio::test]
async fn a_letter_lives_through_a_pooler_like_directly() {
    let (_, tables, guard) = fresh().await;
    let store = pooled(&guard.pooled_url(), &tables, true);
    store
        .migrate()
        .await
        .unwrap_or_else(|error| panic!("{}", chain(&error)));
    let life = a_letters_life(&store).await;
    life.unwrap_or_else(|error| panic!("{}", chain(&error)));
    no_statement_is_left_on_any_server_connection(&store).await;
}

async fn a_letters_life(store: &PostgresStore) -> Result<(), StoreError> {
    let fence = super::partition(store).await;
    let mut session = store.begin().await?;
    let holds = [
        super::head("k", "1", Duration::ZERO),
        super::successor("k", "2"),
    ];
    store.hold(&mut session, "c", &holds).await?;
    session.commit().await?;

    let mut session = store.begin().await?;
    let due = store.due(&mut session, "c", 0..=63, 10).await?;
    let claims = store
        .claim(&mut session, "c", &fence, &[due[0].position], fence.owner)
        .await?;
    assert_eq!(claims.len(), 1);
    session.commit().await?;

    let mut session = store.begin().await?;
    let origin = Origin::Consumer("c".to_owned());
    let letter = super::dead(origin, &due[0].envelope, true);
    let letter = store.bury(&mut session, &[letter]).await?[0];
    let parked = store.park_held(&mut session, "c", &fence, due[0].position, letter);
    assert!(parked.await?);
    session.commit().await?;

    let mut session = store.begin().await?;
    let letters = store.lock_letters(&mut session, &[letter]).await?;
    assert_eq!((letters.len(), letters[0].successors), (1, 1));
    let replay = LetterChange::Replay;
    store
        .change_letters(&mut session, &[letter], replay)
        .await?;
    let (slot, envelope) = (due[0].envelope.slot(), &due[0].envelope);
    let readmitted = store.readmit_held(&mut session, "c", letter, slot, envelope);
    assert!(readmitted.await?);
    session.commit().await?;

    let mut session = store.begin().await?;
    let key = envelope.key.as_ref().expect("it has a key");
    let rows = store.held_of_key(&mut session, "c", key, 10).await?;
    let positions: Vec<i64> = rows.iter().map(|row| row.position).collect();
    let released = store.release(&mut session, "c", &fence, &positions).await?;
    assert_eq!(released, positions);
    let letters = store.lock_letters(&mut session, &[letter]).await?;
    assert_eq!(letters[0].state, LetterState::Replayed);
    session.commit().await
}
