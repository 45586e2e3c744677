//! What only PostgreSQL has, beside the conformance suite that it shares with the others.

mod connect;
mod enqueue;
mod listen;
mod migration;
mod outbox;
mod pooler;
mod retry;
mod session;
mod tls;

use std::time::{Duration, Instant};

use bytes::Bytes;
use diesel_async::AsyncPgConnection;
use posta::OrderingKey;
use posta::message::{Envelope, MessageType};

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
