//! What only PostgreSQL has, beside the conformance suite that it shares with the others.

mod connect;
mod enqueue;
mod letter;
mod listen;
mod migration;
mod outbox;
mod parked;
mod pooler;
mod redispatch;
mod replay;
mod retry;
mod scheduled;
mod session;
mod tls;
mod version_1;

use std::time::{Duration, Instant};

use bytes::Bytes;
use diesel_async::AsyncPgConnection;
use posta::OrderingKey;
use posta::layout::Generation;
use posta::message::{Envelope, MessageType, RawMessage};
use posta::store::{
    DeadLetterStore, Fence, LeaseStore, LetterId, MemberId, NewDeadLetter, NewHold, Origin,
    PostgresStore, Resource, Store,
};

use crate::harness::postgres::number;

/// An envelope with a key and the given payload.
fn keyed(key: &str, payload: &str) -> Envelope {
    Envelope::builder(
        MessageType::new("a.b").expect("a valid type"),
        Bytes::copy_from_slice(payload.as_bytes()),
    )
    .key(Some(OrderingKey::new(key).expect("a valid key")))
    .build()
    .expect("a valid envelope")
}

/// An error with all its causes, as an operator reads it.
fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}

/// Waits until a query returns this number: what a server does after a connection is closed has no
/// signal to wait for.
async fn becomes(connection: &mut AsyncPgConnection, sql: &str, expected: i64) {
    let begun = Instant::now();
    loop {
        let found = number(connection, sql).await;
        if found == expected {
            return;
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "{sql}: {found} instead of {expected}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until so many statements of this database wait for a lock.
async fn blocked(connection: &mut AsyncPgConnection, statements: i64) {
    let sql = "SELECT count(*) FROM pg_stat_activity
               WHERE datname = current_database() AND wait_event_type = 'Lock'";
    becomes(connection, sql, statements).await;
}

/// A member who owns all leases of a resource.
async fn own(store: &PostgresStore, resource: &Resource, count: u8) -> Vec<Fence> {
    let owner = MemberId::random();
    let ttl = Duration::from_secs(3600);
    let mut session = store.begin().await.unwrap();
    store
        .join(&mut session, resource, count, owner, ttl)
        .await
        .unwrap();
    let grants = store
        .acquire(&mut session, resource, count, owner, ttl, 64)
        .await
        .unwrap();
    session.commit().await.unwrap();
    grants
        .into_iter()
        .map(|grant| Fence {
            resource: resource.clone(),
            owner,
            grant,
        })
        .collect()
}

/// The only partition of the consumer `c`.
async fn partition(store: &PostgresStore) -> Fence {
    own(store, &Resource::partitions("c", Generation::first(4)), 1)
        .await
        .remove(0)
}

/// A delivery that failed once.
fn head(key: &str, payload: &str, delay: Duration) -> NewHold {
    let envelope = keyed(key, payload);
    NewHold {
        slot: envelope.slot(),
        envelope,
        attempts: 1,
        error: Some("failed".to_owned()),
        delay: Some(delay),
        parked: None,
    }
}

/// A delivery that waits behind its key's head.
fn successor(key: &str, payload: &str) -> NewHold {
    let envelope = keyed(key, payload);
    NewHold {
        slot: envelope.slot(),
        envelope,
        attempts: 0,
        error: None,
        delay: None,
        parked: None,
    }
}

/// The place of a dead letter.
fn place(envelope: &Envelope, letter: LetterId) -> NewHold {
    NewHold {
        slot: envelope.slot(),
        envelope: envelope.clone(),
        attempts: 0,
        error: None,
        delay: None,
        parked: Some(letter),
    }
}

/// A message that is set aside.
fn dead(origin: Origin, envelope: &Envelope, parked: bool) -> NewDeadLetter {
    NewDeadLetter {
        origin,
        message: RawMessage::from(envelope.clone()),
        reason: "failed",
        error: "it broke".to_owned(),
        fingerprint: "it broke".to_owned(),
        attempts: 3,
        again: None,
        parked,
        discarded: false,
        slot: Some(envelope.slot()),
        first_failed_at: None,
    }
}

/// Sets a message of the consumer `c` aside and parks its key.
async fn parked(store: &PostgresStore, envelope: &Envelope) -> LetterId {
    use posta::store::RetryStore;
    let mut session = store.begin().await.unwrap();
    let letter = dead(Origin::Consumer("c".to_owned()), envelope, true);
    let letter = store.bury(&mut session, &[letter]).await.unwrap()[0];
    store
        .hold(&mut session, "c", &[place(envelope, letter)])
        .await
        .unwrap();
    session.commit().await.unwrap();
    letter
}
