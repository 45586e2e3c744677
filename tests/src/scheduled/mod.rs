//! Scheduled messages, through a running actor system: written and cancelled in transactions, due
//! by the database's clock, moved by whoever owns their lane.

mod blocking;
mod cancel;
mod crash;
mod due;
mod enqueue;
mod many;
mod order;
mod plain_sql;

use std::time::Duration;

use posta::message::MessageId;
use posta::store::{Due, NewScheduled};
use posta::{Envelope, Posta};
use time::OffsetDateTime;

use crate::world::TestDatabase;
use crate::world::effects::{count, rows};
use crate::world::service::{Fate, Numbered};

/// Long enough never to come in a test.
const NEVER: Duration = Duration::from_secs(3600);

/// The message with this number of a key.
fn numbered(key: usize, number: i64) -> Numbered {
    Numbered {
        key: format!("k{key}"),
        number,
        fate: Fate::Succeed,
    }
}

/// The same in its envelope.
fn envelope(key: usize, number: i64) -> Envelope {
    Envelope::of(&numbered(key, number)).expect("an envelope")
}

/// Schedules one message in a transaction of its own.
async fn schedule<D: TestDatabase>(posta: &Posta<D>, envelope: Envelope, due: Due) -> MessageId {
    posta
        .transaction(async |tx| Ok::<_, anyhow::Error>(tx.schedule_envelope(envelope, due)?))
        .await
        .expect("a transaction that schedules")
}

/// Cancels one message in a transaction of its own.
async fn cancel<D: TestDatabase>(posta: &Posta<D>, id: MessageId) -> bool {
    posta
        .transaction(async |tx| Ok::<_, anyhow::Error>(tx.cancel_scheduled(id).await?))
        .await
        .expect("a transaction that cancels")
}

/// How many messages are scheduled.
async fn scheduled<D: TestDatabase>(store: &D::Store) -> i64 {
    rows::<D>(store, "scheduled", "1 = 1").await
}

/// A time column in microseconds since 1970, in SQL.
fn micros<D: TestDatabase>(column: &str) -> String {
    match D::KIND {
        "sqlite" => column.to_owned(),
        _ => format!("CAST(EXTRACT(EPOCH FROM {column}) * 1000000 AS BIGINT)"),
    }
}

/// The database's own time.
async fn database_now<D: TestDatabase>(store: &D::Store) -> OffsetDateTime {
    let sql = match D::KIND {
        "sqlite" => {
            "SELECT CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER) AS count"
        }
        _ => "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) AS count",
    };
    let micros = count::<D>(store, sql).await;
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1000).expect("a time")
}

/// What the store takes.
fn due(envelope: Envelope, due: Due) -> NewScheduled {
    NewScheduled { envelope, due }
}
