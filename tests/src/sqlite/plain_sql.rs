use diesel::{Connection as _, SqliteConnection};
use diesel_async::SimpleAsyncConnection as _;
use posta::outbox::EnqueueError;
use posta::outbox::blocking::BlockingOutbox;
use posta::store::{OutboxRow, OutboxStore, SqliteStore, Store, StoreErrorKind};
use posta::{Database as _, Slot, Sqlite};

use super::child::message;
use crate::harness::sqlite::SqliteFile;

async fn run(store: &SqliteStore, sql: &str) {
    let mut session = store.begin().await.unwrap();
    session.batch_execute(sql).await.unwrap();
    session.commit().await.unwrap();
}

async fn pending(store: &SqliteStore, limit: usize) -> Vec<OutboxRow> {
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut session = store.begin().await.unwrap();
    let rows = store
        .pending(&mut session, &lanes, &[], limit)
        .await
        .unwrap();
    session.commit().await.unwrap();
    rows
}

fn payload(row: &OutboxRow) -> String {
    let payload = match &row.message {
        Ok(envelope) => &envelope.payload,
        Err(malformed) => &malformed.raw.payload,
    };
    String::from_utf8_lossy(payload).into_owned()
}

#[tokio::test]
async fn many_rows_without_a_slot_are_never_overtaken_by_one_with() {
    let (_file, store) = SqliteFile::migrated().await;
    run(
        &store,
        "WITH RECURSIVE n (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM n WHERE n < 2499)
         INSERT INTO posta_outbox (message_type, payload, ordering_key) SELECT 'a', CAST(n AS TEXT), 'k' FROM n",
    )
    .await;
    let mut session = store.begin().await.unwrap();
    Sqlite::insert_outbox(&mut session, store.tables(), &[message("k", 2500)])
        .await
        .unwrap();
    session.commit().await.unwrap();
    // Each look gives slots to so many rows, and sees no further.
    let mut seen = Vec::new();
    while seen.len() < 2501 {
        let rows: Vec<String> = pending(&store, 10_000).await.iter().map(payload).collect();
        let expected: Vec<String> = (0..rows.len()).map(|n| n.to_string()).collect();
        assert!(rows.len() > seen.len());
        assert_eq!(rows, expected);
        seen = rows;
    }
}

#[tokio::test]
async fn text_that_is_not_utf8_is_malformed_and_fails_alone() {
    let (_file, store) = SqliteFile::migrated().await;
    run(
        &store,
        "INSERT INTO posta_outbox (message_type, payload) VALUES (CAST(x'61ff' AS TEXT), 'type');
         INSERT INTO posta_outbox (message_type, payload, ordering_key) VALUES ('a', 'key', CAST(x'eda080' AS TEXT));
         INSERT INTO posta_outbox (message_type, payload, ordering_key) VALUES ('a', 'nul', CAST(x'610062' AS TEXT));
         INSERT INTO posta_outbox (message_type, payload, content_type) VALUES ('a', 'content', CAST(x'80' AS TEXT));
         INSERT INTO posta_outbox (message_type, payload, headers) VALUES ('a', 'headers', '{\"a\": \"\\ud800\"}');
         INSERT INTO posta_outbox (message_type, payload, enqueued_at) VALUES ('a', 'good', 'yesterday');
         INSERT INTO posta_outbox (message_type, payload, version) VALUES ('a', 'good too', '2');",
    )
    .await;
    let mut rows = pending(&store, 100).await;
    rows.sort_by_key(|row| row.id.position);
    let found: Vec<(String, String)> = rows
        .iter()
        .map(|row| {
            let reason = row
                .message
                .as_ref()
                .err()
                .map(|malformed| malformed.reason.clone());
            (payload(row), reason.unwrap_or_default())
        })
        .collect();
    let found: Vec<(&str, &str)> = found
        .iter()
        .map(|(payload, reason)| (payload.as_str(), reason.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            ("type", "message type is not UTF-8"),
            ("key", "ordering key is not UTF-8"),
            (
                "nul",
                "ordering key holds the byte 0x00, which is not allowed there"
            ),
            ("content", "content type is not UTF-8"),
            ("headers", "header \"a\" is no text"),
            ("good", ""),
            ("good too", ""),
        ]
    );
}

#[tokio::test]
async fn a_row_that_breaks_the_contract_is_refused_at_its_insert() {
    let (_file, store) = SqliteFile::migrated().await;
    for columns in [
        "(message_type, payload) VALUES ('', '{}')",
        "(message_type, payload) VALUES (NULL, '{}')",
        "(message_type) VALUES ('a')",
        "(message_type, payload, version) VALUES ('a', '{}', 0)",
        "(message_type, payload, version) VALUES ('a', '{}', 'two')",
        "(message_type, payload, message_id) VALUES ('a', '{}', 'not 16 bytes')",
        "(message_type, payload, message_id) VALUES ('a', '{}', '0123456789abcdef')",
        "(message_type, payload, ordering_key) VALUES ('a', '{}', '')",
        "(message_type, payload, headers) VALUES ('a', '{}', '[]')",
        "(message_type, payload, headers) VALUES ('a', '{}', 'no JSON')",
        "(message_type, payload, slot) VALUES ('a', '{}', 64)",
        "(message_type, payload, attempts) VALUES ('a', '{}', 1)",
    ] {
        let mut session = store.begin().await.unwrap();
        let refused = session
            .batch_execute(&format!("INSERT INTO posta_outbox {columns}"))
            .await;
        session.rollback().await;
        let kind = Sqlite::classify(&refused.expect_err(columns));
        assert_eq!(kind, StoreErrorKind::Rejected, "{columns}");
    }
}

/// A statement that fails leaves the transaction as it was before it, as every statement of SQLite
/// does.
#[tokio::test]
async fn an_insert_of_several_is_all_or_nothing_in_a_transaction_that_goes_on() {
    let (_file, store) = SqliteFile::migrated().await;
    let (first, twice) = (message("k", 1), message("k", 2));
    let mut session = store.begin().await.unwrap();
    Sqlite::insert_outbox(&mut session, store.tables(), &[first])
        .await
        .unwrap();
    let several = [message("k", 3), twice.clone(), twice];
    let refused = Sqlite::insert_outbox(&mut session, store.tables(), &several).await;
    assert_eq!(refused.unwrap_err().kind(), StoreErrorKind::Rejected);
    Sqlite::insert_outbox(&mut session, store.tables(), &[message("k", 4)])
        .await
        .unwrap();
    session.commit().await.unwrap();
    let rows: Vec<String> = pending(&store, 100).await.iter().map(payload).collect();
    assert_eq!(rows, ["1", "4"]);
}

/// Any connection will do, in or outside a transaction of diesel's or of the application's own SQL.
#[tokio::test]
async fn enqueueing_works_in_any_transaction_and_without_one() {
    use diesel_async::AsyncConnection as _;
    let (file, store) = SqliteFile::migrated().await;
    let path = file.path();
    let mut connection = posta::store::sqlite::Connection::establish(&path.to_string_lossy())
        .await
        .unwrap();
    let tables = store.tables();
    let two = |n| [message("k", n), message("k", n + 1)];
    Sqlite::insert_outbox(&mut connection, tables, &two(0))
        .await
        .unwrap();
    connection.batch_execute("BEGIN IMMEDIATE").await.unwrap();
    Sqlite::insert_outbox(&mut connection, tables, &two(2))
        .await
        .unwrap();
    connection.batch_execute("COMMIT").await.unwrap();
    connection
        .transaction::<_, diesel::result::Error, _>(async |connection| {
            Sqlite::insert_outbox(connection, tables, &two(4))
                .await
                .unwrap();
            Ok(())
        })
        .await
        .unwrap();
    let undone: Result<(), diesel::result::Error> = connection
        .transaction(async |connection| {
            Sqlite::insert_outbox(connection, tables, &two(6))
                .await
                .unwrap();
            Err(diesel::result::Error::RollbackTransaction)
        })
        .await;
    undone.unwrap_err();
    let rows: Vec<String> = pending(&store, 100).await.iter().map(payload).collect();
    assert_eq!(rows, ["0", "1", "2", "3", "4", "5"]);
}

/// Services that are not async, and diesel-async connections of another type, enqueue on the
/// connection itself.
#[tokio::test]
async fn a_message_shares_the_fate_of_a_blocking_transaction() {
    let (file, store) = SqliteFile::migrated().await;
    let path = file.path();
    tokio::task::spawn_blocking(move || {
        let outbox = BlockingOutbox::<Sqlite>::default();
        let mut connection = SqliteConnection::establish(&path.to_string_lossy()).unwrap();
        let undone = connection.immediate_transaction(|connection| {
            outbox.enqueue_envelopes(connection, &[message("k", 1), message("k", 2)])?;
            Err::<(), anyhow::Error>(anyhow::anyhow!("changed my mind"))
        });
        assert!(undone.is_err());
        let done = connection.immediate_transaction(|connection| {
            outbox.enqueue_envelopes(connection, &[message("k", 3), message("k", 4)])?;
            outbox.enqueue_envelopes(connection, &[])?;
            outbox.enqueue_envelopes(connection, &[message("k", 5)])?;
            Ok::<_, anyhow::Error>(())
        });
        done.unwrap();
        let twice = message("k", 6);
        let refused = outbox.enqueue_envelopes(&mut connection, &[twice.clone(), twice]);
        assert!(matches!(refused, Err(EnqueueError::Store(_))));
    })
    .await
    .unwrap();
    let rows: Vec<String> = pending(&store, 100).await.iter().map(payload).collect();
    assert_eq!(rows, ["3", "4", "5"]);
}
