use diesel::Connection as _;
use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
use posta::message::{Json, KeyWriter, Message};
use posta::outbox::EnqueueError;
use posta::outbox::blocking::BlockingOutbox;
use posta::store::{OutboxRow, OutboxStore, PostgresStore, Store, StoreErrorKind};
use posta::{Outbox, Postgres, Slot};

use crate::harness::postgres::{migrated, number, run};

#[derive(serde::Serialize, serde::Deserialize)]
struct Placed {
    order: u32,
    note: String,
}

impl Message for Placed {
    const TYPE: &'static str = "order.placed";
    const VERSION: u32 = 3;
    type Codec = Json;

    fn write_key(&self, key: &mut KeyWriter) {
        key.field(&self.order);
    }
}

fn placed(order: u32) -> Placed {
    Placed {
        order,
        note: "a\0b \u{1f980} \\u0000".to_owned(),
    }
}

fn too_large() -> Placed {
    Placed {
        order: 0,
        note: "x".repeat(100),
    }
}

async fn rows(store: &PostgresStore) -> Vec<OutboxRow> {
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut session = store.begin().await.unwrap();
    let rows = store
        .pending(&mut session, &lanes, &[], 1000)
        .await
        .unwrap();
    session.rollback().await;
    rows
}

fn orders(rows: &[OutboxRow]) -> Vec<String> {
    let key = |row: &OutboxRow| {
        row.message
            .as_ref()
            .unwrap()
            .key
            .as_ref()
            .unwrap()
            .to_string()
    };
    rows.iter().map(key).collect()
}

#[tokio::test]
async fn a_message_shares_the_fate_of_the_applications_own_transaction() {
    let (guard, store) = migrated().await;
    let outbox = Outbox::<Postgres>::new(store.tables().clone());
    let mut connection = guard.connection().await;
    let rolled_back = connection
        .transaction(async |connection: &mut AsyncPgConnection| {
            outbox.enqueue(connection, &placed(1)).await?;
            Err::<(), anyhow::Error>(anyhow::anyhow!("changed my mind"))
        })
        .await;
    assert!(rolled_back.is_err());
    assert!(rows(&store).await.is_empty());
    connection
        .transaction(async |connection: &mut AsyncPgConnection| {
            outbox.enqueue(connection, &placed(2)).await?;
            outbox
                .enqueue_all(connection, &[placed(3), placed(4)])
                .await?;
            Ok::<_, anyhow::Error>(())
        })
        .await
        .unwrap();
    let rows = rows(&store).await;
    assert_eq!(orders(&rows), ["2", "3", "4"]);
    let envelope = rows[0].message.as_ref().unwrap();
    assert_eq!(envelope.payload, serde_json::to_vec(&placed(2)).unwrap());
    assert_eq!((envelope.version, envelope.slot()), (3, rows[0].id.slot));
    assert!(envelope.enqueued_at.is_some());
}

#[tokio::test]
async fn a_message_that_breaks_a_limit_leaves_the_transaction_usable() {
    let (guard, store) = migrated().await;
    let outbox = Outbox::<Postgres>::new(store.tables().clone()).payload_bytes_max(80);
    let mut connection = guard.connection().await;
    connection
        .transaction(async |connection: &mut AsyncPgConnection| {
            let refused = outbox.enqueue(connection, &too_large()).await;
            assert!(matches!(refused, Err(EnqueueError::Message { .. })));
            outbox.enqueue(connection, &placed(1)).await?;
            Ok::<_, anyhow::Error>(())
        })
        .await
        .unwrap();
    assert_eq!(rows(&store).await.len(), 1);
}

#[tokio::test]
async fn a_message_shares_the_fate_of_a_blocking_transaction() {
    let (guard, store) = migrated().await;
    let outbox = BlockingOutbox::<Postgres>::new(Outbox::new(store.tables().clone()));
    let url = guard.url();
    tokio::task::spawn_blocking(move || {
        let mut connection = diesel::PgConnection::establish(&url).unwrap();
        let rolled_back = connection.transaction(|connection| {
            outbox.enqueue(connection, &placed(1))?;
            Err::<(), anyhow::Error>(anyhow::anyhow!("changed my mind"))
        });
        assert!(rolled_back.is_err());
        connection
            .transaction(|connection| {
                outbox.enqueue(connection, &placed(2))?;
                let ids = outbox.enqueue_all(connection, &[placed(3), placed(4)])?;
                assert_eq!(ids.len(), 2);
                assert!(outbox.enqueue_all::<Placed>(connection, &[])?.is_empty());
                Ok::<_, anyhow::Error>(())
            })
            .unwrap();
    })
    .await
    .unwrap();
    assert_eq!(orders(&rows(&store).await), ["2", "3", "4"]);
}

#[tokio::test]
async fn missing_tables_are_told_from_a_refusal_on_every_connection() {
    let (guard, store) = migrated().await;
    let elsewhere = BlockingOutbox::<Postgres>::default();
    let here = BlockingOutbox::<Postgres>::new(Outbox::new(store.tables().clone()));
    let url = guard.url();
    let kinds = tokio::task::spawn_blocking(move || {
        let mut connection = diesel::PgConnection::establish(&url).unwrap();
        let envelope = super::keyed("k", "");
        let twice = [envelope.clone(), envelope];
        [(elsewhere, &twice[..1]), (here, &twice[..])].map(|(outbox, envelopes)| {
            match outbox.enqueue_envelopes(&mut connection, envelopes) {
                Err(EnqueueError::Store(error)) => error.kind(),
                other => panic!("{other:?}"),
            }
        })
    })
    .await
    .unwrap();
    assert_eq!(kinds, [StoreErrorKind::Schema, StoreErrorKind::Rejected]);
}

/// The outbox's columns are a contract: what another language has to write, and what the database
/// adds.
#[tokio::test]
async fn plain_sql_enqueues_like_any_other() {
    let (guard, store) = migrated().await;
    let name = store.tables().name().to_owned();
    run(
        &guard.url(),
        &format!(
            r#"INSERT INTO {name}.outbox (message_type, ordering_key, headers, payload)
               VALUES ('order.placed', 'order-1', '{{"correlation-id": "c"}}', convert_to('{{"order": 1}}', 'UTF8'));
               INSERT INTO {name}.outbox (message_type, payload) VALUES ('order.placed', '\x00ff')"#
        ),
    )
    .await;
    let rows = rows(&store).await;
    let first = rows[0].message.as_ref().unwrap();
    assert_eq!(
        (first.version, first.content_type.as_str()),
        (1, "application/json")
    );
    assert_eq!(first.headers.get("correlation-id"), Some("c"));
    assert_eq!(
        rows[0].id.slot.number(),
        11,
        "the published vector of order-1"
    );
    let second = rows[1].message.as_ref().unwrap();
    assert_eq!(second.payload, &b"\0\xff"[..]);
    assert_eq!(
        second.slot(),
        rows[1].id.slot,
        "a message without a key has its id's slot"
    );
}

#[tokio::test]
async fn the_database_computes_the_slots_that_this_code_computes() {
    let (guard, store) = migrated().await;
    let mut connection = guard.connection().await;
    for key in [
        "order-1", "order-2", "München", "a", "🦀/~1", "\u{7f}", "ключ",
    ] {
        let slot = format!("SELECT {}.slot_of('{key}')", store.tables().name());
        let expected = Slot::of_key(&posta::OrderingKey::new(key).unwrap());
        assert_eq!(
            number(&mut connection, &slot).await,
            i64::from(expected.number()),
            "{key}"
        );
    }
}

#[tokio::test]
async fn what_plain_sql_must_not_write_is_refused_by_name() {
    let (guard, store) = migrated().await;
    let mut connection = guard.connection().await;
    for (columns, values, constraint) in [
        ("message_type", "''", "outbox_message_type_size"),
        ("message_type, version", "'a', 0", "outbox_version_range"),
        (
            "message_type, ordering_key",
            "'a', ''",
            "outbox_ordering_key_size",
        ),
        (
            "message_type, headers",
            "'a', '[]'",
            "outbox_headers_object",
        ),
        (
            "message_type, held_until",
            "'a', now()",
            "outbox_hold_is_failure",
        ),
        (
            "message_type, last_error",
            "'a', 'x'",
            "outbox_hold_has_reason",
        ),
    ] {
        let name = store.tables().name();
        let insert =
            format!("INSERT INTO {name}.outbox (payload, {columns}) VALUES ('', {values})");
        let error = connection
            .batch_execute(&insert)
            .await
            .expect_err(constraint);
        assert!(error.to_string().contains(constraint), "{error}");
    }
}
