//! The outbox's columns are a contract: rows that plain SQL wrote.

use std::collections::HashSet;

use posta::Slot;
use posta::store::OutboxStore;

pub(super) use super::given::fresh as start;
use super::given::{Place, key_of, keyed, messages, payloads};
use crate::harness::database::TestDatabase;

pub(super) async fn a_malformed_row_comes_alone_with_its_bytes<D: TestDatabase>(place: &Place<D>) {
    let outbox = place.table("outbox");
    let bytes = D::bytes(b"\x00\xff bytes");
    place.enqueue(&[keyed("k", b"before")]).await;
    let long = "c".repeat(256);
    let spoilt = [
        (
            format!("(message_type, payload, ordering_key) VALUES ('has a blank', {bytes}, 'k1')"),
            "message type",
        ),
        (
            format!("(message_type, payload, ordering_key) VALUES ('has.*', {bytes}, 'k2')"),
            "message type",
        ),
        (
            format!(
                "(message_type, payload, headers) VALUES ('a.b', {bytes}, '{{\"a b\": \"v\"}}')"
            ),
            "header",
        ),
        (
            format!("(message_type, payload, content_type) VALUES ('a.b', {bytes}, '{long}')"),
            "content type",
        ),
    ];
    for (row, _) in &spoilt {
        place.run(&format!("INSERT INTO {outbox} {row}")).await;
    }
    place.enqueue(&[keyed("k", b"after")]).await;
    let mut rows = place.pending().await;
    rows.sort_by_key(|row| row.id.position);
    assert_eq!(rows.len(), spoilt.len() + 2);
    assert_eq!(
        payloads(&[rows.remove(0), rows.pop().unwrap()]),
        ["before", "after"]
    );
    for (row, (sql, field)) in rows.iter().zip(&spoilt) {
        let malformed = row.message.as_ref().expect_err(sql);
        assert!(
            malformed.reason.contains(field),
            "{sql}: {}",
            malformed.reason
        );
        assert_eq!(malformed.raw.payload.as_ref(), b"\x00\xff bytes");
        assert!(malformed.raw.id.is_some() && malformed.raw.message_type.is_some());
    }
}

pub(super) async fn a_header_that_is_no_text_is_malformed_and_kept_as_its_json<D: TestDatabase>(
    place: &Place<D>,
) {
    let (outbox, bytes) = (place.table("outbox"), D::bytes(b"{}"));
    place
        .run(&format!(
            "INSERT INTO {outbox} (message_type, payload, headers)
             VALUES ('a.b', {bytes}, '{{\"number\":1,\"yes\":true,\"list\":[1],\"text\":\"t\"}}')"
        ))
        .await;
    let rows = place.pending().await;
    let malformed = rows[0]
        .message
        .as_ref()
        .expect_err("a header that is no text");
    assert!(malformed.reason.contains("header"), "{}", malformed.reason);
    let headers: Vec<(&str, &str)> = malformed
        .raw
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    assert_eq!(
        headers,
        [
            ("list", "[1]"),
            ("number", "1"),
            ("text", "t"),
            ("yes", "true")
        ]
    );
}

pub(super) async fn an_unknown_type_is_carried_like_any_other<D: TestDatabase>(place: &Place<D>) {
    let outbox = place.table("outbox");
    let bytes = D::bytes(b"not even JSON");
    place
        .run(&format!(
            "INSERT INTO {outbox} (message_type, payload) VALUES ('gone.Type', {bytes})"
        ))
        .await;
    let rows = place.pending().await;
    assert_eq!(payloads(&rows), ["not even JSON"]);
    assert_eq!(messages(&rows)[0].message_type.as_str(), "gone.Type");
}

pub(super) async fn plain_sql_needs_a_type_and_a_payload_only<D: TestDatabase>(place: &Place<D>) {
    let outbox = place.table("outbox");
    let bytes = D::bytes(b"{}");
    for _ in 0..3 {
        place
            .run(&format!(
                "INSERT INTO {outbox} (message_type, payload) VALUES ('a.b', {bytes})"
            ))
            .await;
    }
    let rows = place.pending().await;
    let found = messages(&rows);
    assert_eq!(found.len(), 3);
    for (envelope, row) in found.iter().zip(&rows) {
        assert_eq!(
            (envelope.version, envelope.content_type.as_str()),
            (1, "application/json")
        );
        assert_eq!(
            (envelope.key.clone(), envelope.headers.is_empty()),
            (None, true)
        );
        assert!(envelope.enqueued_at.is_some());
        assert_eq!(envelope.id.as_uuid().get_version_num(), 4);
        assert_eq!(row.id.slot, envelope.slot());
    }
    assert_eq!(
        found
            .iter()
            .map(|envelope| envelope.id)
            .collect::<HashSet<_>>()
            .len(),
        3
    );
}

pub(super) async fn plain_sql_rows_keep_the_order_of_their_key<D: TestDatabase>(place: &Place<D>) {
    let outbox = place.table("outbox");
    for n in 0..6 {
        let payload = format!("{n}");
        if n % 2 == 0 {
            let bytes = D::bytes(payload.as_bytes());
            let sql = format!(
                "INSERT INTO {outbox} (message_type, payload, ordering_key) VALUES ('a.b', {bytes}, 'ключ')"
            );
            place.run(&sql).await;
        } else {
            place.enqueue(&[keyed("ключ", payload.as_bytes())]).await;
        }
    }
    let rows = place.pending().await;
    assert_eq!(payloads(&rows), ["0", "1", "2", "3", "4", "5"]);
    assert!(
        rows.iter()
            .all(|row| row.id.slot == Slot::of_key(&key_of("ключ")))
    );
}

pub(super) async fn adoption_leaves_no_row_without_a_slot<D: TestDatabase>(place: &Place<D>) {
    let outbox = place.table("outbox");
    let bytes = D::bytes(b"{}");
    for _ in 0..5 {
        place
            .run(&format!(
                "INSERT INTO {outbox} (message_type, payload) VALUES ('a.b', {bytes})"
            ))
            .await;
    }
    let mut session = place.begin().await;
    let mut adopted = 0;
    while let more @ 1.. = place.store.adopt(&mut session, 2).await.unwrap() {
        assert!(more <= 2);
        adopted += more;
    }
    session.commit().await.unwrap();
    assert!(adopted == 0 || adopted == 5, "{adopted}");
    let without = place
        .texts(&format!(
            "SELECT CAST(COUNT(*) AS text) AS value FROM {outbox} WHERE slot IS NULL"
        ))
        .await;
    assert_eq!(without[0].as_deref(), Some("0"));
    assert_eq!(place.pending().await.len(), 5);
}
