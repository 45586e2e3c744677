//! Dead letters: messages that are set aside, from either end.

use std::collections::BTreeMap;

use bytes::Bytes;
use posta::message::RawMessage;
use posta::store::{DeadLetterStore, NewDeadLetter, Origin};

pub(super) use super::given::fresh as start;
use super::given::{Place, keyed, odd_errors, odd_payloads};
use crate::harness::database::TestDatabase;

pub(super) async fn a_message_of_which_nothing_is_known_is_kept<D: TestDatabase>(place: &Place<D>) {
    bury(place, &[letter(Origin::Dispatch, RawMessage::default())]).await;
    bury(place, &[letter(consumer("c"), RawMessage::default())]).await;
    let table = place.table("dead_letter");
    let nothing = place
        .texts(&format!(
            "SELECT CAST(COUNT(*) AS text) AS value FROM {table}
             WHERE message_id IS NULL AND message_type IS NULL AND version IS NULL AND ordering_key IS NULL
               AND content_type IS NULL AND enqueued_at IS NULL AND {} = ''",
            D::hex("payload")
        ))
        .await;
    assert_eq!(nothing, [Some("2".to_owned())]);
}

pub(super) async fn a_dead_letter_keeps_every_part_and_the_payloads_bytes<D: TestDatabase>(
    place: &Place<D>,
) {
    let mut envelope = keyed("ключ", b"");
    envelope.headers.set("h", "v").unwrap();
    let payloads = odd_payloads();
    let letters: Vec<NewDeadLetter> = payloads
        .iter()
        .map(|payload| {
            let mut message = RawMessage::from(envelope.clone());
            message.payload = Bytes::from(payload.clone());
            letter(consumer("c"), message)
        })
        .collect();
    bury(place, &letters).await;
    let table = place.table("dead_letter");
    let read = async |expression: &str| {
        place
            .texts(&format!(
                "SELECT {expression} AS value FROM {table} ORDER BY position"
            ))
            .await
    };
    let hex = |bytes: &[u8]| {
        bytes
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect::<String>()
    };
    let expected: Vec<Option<String>> = payloads.iter().map(|bytes| Some(hex(bytes))).collect();
    assert!(
        read(&D::hex("payload")).await == expected,
        "the payloads' bytes"
    );
    let id = envelope.id.to_string();
    for (column, value) in [
        ("consumer", "c"),
        ("message_id", id.as_str()),
        ("message_type", "order.placed"),
        ("CAST(version AS text)", "1"),
        ("ordering_key", "ключ"),
        ("content_type", "application/octet-stream"),
        ("CAST(attempts AS text)", "3"),
        ("reason", "undecodable"),
        ("error", "it broke"),
    ] {
        assert_eq!(read(column).await[0].as_deref(), Some(value), "{column}");
    }
    let headers = read("CAST(headers AS text)").await[0].clone().unwrap();
    let headers: BTreeMap<String, String> = serde_json::from_str(&headers).unwrap();
    assert_eq!(headers, BTreeMap::from([("h".to_owned(), "v".to_owned())]));
}

pub(super) async fn odd_texts_are_kept_without_nul<D: TestDatabase>(place: &Place<D>) {
    let mut letters = Vec::new();
    for (text, _) in odd_errors() {
        let message = RawMessage {
            id: Some(text.clone()),
            message_type: Some(text.clone()),
            version: Some(i64::MIN),
            key: Some(text.clone()),
            headers: BTreeMap::from([(text.clone(), text.clone())]),
            content_type: Some(text.clone()),
            payload: Bytes::copy_from_slice(text.as_bytes()),
            enqueued_at: None,
        };
        letters.push(NewDeadLetter {
            error: text,
            ..letter(Origin::Dispatch, message)
        });
    }
    bury(place, &letters).await;
    let table = place.table("dead_letter");
    let errors = place
        .texts(&format!(
            "SELECT error AS value FROM {table} ORDER BY position"
        ))
        .await;
    let expected: Vec<Option<String>> = odd_errors()
        .into_iter()
        .map(|(_, stored)| Some(stored))
        .collect();
    assert_eq!(errors, expected);
    for column in ["message_id", "message_type", "ordering_key", "content_type"] {
        let found = place
            .texts(&format!(
                "SELECT {column} AS value FROM {table} ORDER BY position"
            ))
            .await;
        for (found, (text, _)) in found.iter().zip(odd_errors()) {
            let kept = text.replace('\0', "\u{fffd}");
            let found = found.as_deref().expect("it was given");
            // A part that no valid message has may be cut, as error texts are.
            assert!(
                found == kept || (found.len() >= 8000 && kept.starts_with(found)),
                "{column}"
            );
        }
    }
}

pub(super) async fn letters_are_counted_by_origin<D: TestDatabase>(place: &Place<D>) {
    let message = RawMessage::from(keyed("k", b""));
    let letters: Vec<NewDeadLetter> = [
        Origin::Dispatch,
        consumer("a"),
        consumer("a"),
        consumer("b"),
        Origin::Dispatch,
    ]
    .into_iter()
    .map(|origin| letter(origin, message.clone()))
    .collect();
    bury(place, &letters).await;
    bury(place, &letters[..1]).await;
    assert_eq!(count(place, &Origin::Dispatch).await, 3);
    assert_eq!(count(place, &consumer("a")).await, 2);
    assert_eq!(count(place, &consumer("b")).await, 1);
    assert_eq!(count(place, &consumer("c")).await, 0);
}

pub(super) async fn burying_nothing_writes_nothing<D: TestDatabase>(place: &Place<D>) {
    bury(place, &[]).await;
    assert_eq!(place.rows("dead_letter").await, 0);
}

pub(super) async fn a_burial_that_is_rolled_back_never_was<D: TestDatabase>(place: &Place<D>) {
    let mut session = place.begin().await;
    let letters = [letter(Origin::Dispatch, RawMessage::default())];
    place.store.bury(&mut session, &letters).await.unwrap();
    session.rollback().await;
    assert_eq!(count(place, &Origin::Dispatch).await, 0);
}

fn consumer(name: &str) -> Origin {
    Origin::Consumer(name.to_owned())
}

fn letter(origin: Origin, message: RawMessage) -> NewDeadLetter {
    NewDeadLetter {
        origin,
        message,
        reason: "undecodable",
        error: "it broke".to_owned(),
        fingerprint: "it broke".to_owned(),
        attempts: 3,
        again: None,
        parked: false,
        discarded: false,
        slot: None,
        first_failed_at: None,
    }
}

async fn bury<D: TestDatabase>(place: &Place<D>, letters: &[NewDeadLetter]) {
    let mut session = place.begin().await;
    place.store.bury(&mut session, letters).await.unwrap();
    session.commit().await.unwrap();
}

async fn count<D: TestDatabase>(place: &Place<D>, origin: &Origin) -> u64 {
    let mut session = place.begin().await;
    let count = place
        .store
        .dead_letters(&mut session, origin)
        .await
        .unwrap();
    session.commit().await.unwrap();
    count
}
