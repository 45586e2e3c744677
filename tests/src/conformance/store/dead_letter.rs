//! Dead letters: messages that are set aside, from either end.

use std::collections::BTreeMap;

use bytes::Bytes;
use posta::message::RawMessage;
use posta::store::{
    DeadLetterStore, LetterChange, LetterState, NewDeadLetter, NewRevision, Origin, RedispatchStore,
};
use time::OffsetDateTime;

pub(super) use super::given::fresh as start;
use super::given::{ODD_TEXTS, Place, keyed, odd_errors, odd_payloads};
use super::letters::{any, consumer, dead, letter};
use crate::harness::database::TestDatabase;

pub(super) async fn a_message_of_which_nothing_is_known_is_kept<D: TestDatabase>(place: &Place<D>) {
    place
        .bury(&[letter(Origin::Dispatch, RawMessage::default())])
        .await;
    place
        .bury(&[letter(consumer("c"), RawMessage::default())])
        .await;
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
    place.bury(&letters).await;
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
    place.bury(&letters).await;
    let table = place.table("dead_letter");
    let errors = place
        .texts(&format!(
            "SELECT error AS value FROM {table} ORDER BY position"
        ))
        .await;
    assert_eq!(errors.len(), odd_errors().len());
    for (found, (text, _)) in errors.iter().zip(odd_errors()) {
        let whole = text.replace('\0', "\u{fffd}");
        let found = found.as_deref().expect("an error");
        // More of it than elsewhere.
        let cut = (65_535..=65_536).contains(&found.len()) && whole.starts_with(found);
        assert!(found == whole || cut, "{} bytes", found.len());
    }
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
    place.bury(&letters).await;
    place.bury(&letters[..1]).await;
    assert_eq!(count(place, &Origin::Dispatch).await, 3);
    assert_eq!(count(place, &consumer("a")).await, 2);
    assert_eq!(count(place, &consumer("b")).await, 1);
    assert_eq!(count(place, &consumer("c")).await, 0);
}

pub(super) async fn consumers_with_letters_are_named_once<D: TestDatabase>(place: &Place<D>) {
    let names = async || {
        place
            .done(async |store, session| store.dead_consumers(session).await)
            .await
    };
    assert_eq!(names().await, [""; 0]);
    let nothing = RawMessage::default;
    place.bury(&[letter(Origin::Dispatch, nothing())]).await;
    assert_eq!(names().await, [""; 0]);
    for name in ["c", "a", "c", "b", "a"] {
        place.bury(&[letter(consumer(name), nothing())]).await;
    }
    assert_eq!(names().await, ["a", "b", "c"]);
}

pub(super) async fn burying_nothing_writes_nothing<D: TestDatabase>(place: &Place<D>) {
    place.bury(&[]).await;
    assert_eq!(place.rows("dead_letter").await, 0);
}

pub(super) async fn a_burial_that_is_rolled_back_never_was<D: TestDatabase>(place: &Place<D>) {
    let mut session = place.begin().await;
    let letters = [letter(Origin::Dispatch, RawMessage::default())];
    place.store.bury(&mut session, &letters).await.unwrap();
    session.rollback().await;
    assert_eq!(count(place, &Origin::Dispatch).await, 0);
}

pub(super) async fn a_letter_reads_as_it_was_set_aside<D: TestDatabase>(place: &Place<D>) {
    let now = now(place).await;
    let mut letters: Vec<NewDeadLetter> = odd_payloads()
        .iter()
        .map(|payload| dead(&keyed("k", payload)))
        .collect();
    letters.extend(ODD_TEXTS.map(|text| {
        let mut envelope = keyed(text, text.as_bytes());
        envelope.headers.set("odd", text).unwrap();
        envelope.content_type = text.to_owned();
        envelope.enqueued_at = Some(now);
        NewDeadLetter {
            origin: Origin::Dispatch,
            error: text.to_owned(),
            fingerprint: text.to_owned(),
            attempts: u32::from(u16::MAX),
            first_failed_at: Some(now),
            ..dead(&envelope)
        }
    }));
    // Nothing of it is valid.
    letters.push(letter(
        consumer("c"),
        RawMessage {
            id: Some("7".to_owned()),
            version: Some(i64::MIN),
            ..RawMessage::default()
        },
    ));
    let ids = place.bury(&letters).await;
    assert!(ids.is_sorted() && ids.len() == letters.len());
    let found = place.letters(&any()).await;
    assert_eq!(
        found.iter().map(|letter| letter.id).collect::<Vec<_>>(),
        ids
    );
    for (found, letter) in found.iter().zip(&letters) {
        assert_eq!(found.origin, letter.origin);
        assert!(found.message == letter.message, "{:?}", letter.message.key);
        assert_eq!(
            (found.reason.as_str(), &found.error, &found.fingerprint),
            (letter.reason, &letter.error, &letter.fingerprint)
        );
        assert_eq!((found.attempts, found.slot), (letter.attempts, letter.slot));
        assert_eq!(
            (found.state, found.replays, found.revision),
            (LetterState::Dead, 0, 0)
        );
        assert_eq!((found.parked, found.successors), (false, 0));
        assert_eq!(found.ended_at, None);
        match letter.first_failed_at {
            Some(at) => assert_eq!(found.first_failed_at, Some(at)),
            // One that is not known to have failed before failed now.
            None => assert!(found.first_failed_at >= Some(now)),
        }
        assert!(found.dead_at >= now);
    }
}

pub(super) async fn a_message_that_dies_again_is_the_same_letter<D: TestDatabase>(
    place: &Place<D>,
) {
    let envelope = keyed("k", b"original");
    let first = place.bury(&[dead(&envelope)]).await[0];
    let before = place.letter(first).await;
    let revision = NewRevision {
        payload: Bytes::from_static(b"revised"),
        version: Some(2),
        content_type: None,
        who: "ada".to_owned(),
        reason: "a typo".to_owned(),
    };
    place
        .done(async |store, session| store.revise(session, first, &revision).await)
        .await;
    assert_eq!(place.change(&[first], LetterChange::Replay).await, [first]);
    let again = NewDeadLetter {
        reason: "failed",
        error: "another".to_owned(),
        fingerprint: "another #".to_owned(),
        attempts: 15,
        again: Some(first),
        parked: true,
        ..dead(&keyed("other", b"what was replayed"))
    };
    let another = dead(&keyed("k", b"new"));
    let ids = place.bury(&[another.clone(), again, another]).await;
    assert!(ids[1] == first && ids[0] > first && ids[2] > ids[0]);
    let after = place.letter(first).await;
    assert_eq!(after.message.payload.as_ref(), b"revised");
    assert_eq!(after.message.key.as_deref(), Some("k"));
    assert_eq!((after.revision, after.replays), (1, 1));
    assert_eq!(after.first_failed_at, before.first_failed_at);
    assert_eq!(
        (
            after.reason.as_str(),
            after.error.as_str(),
            after.fingerprint.as_str()
        ),
        ("failed", "another", "another #")
    );
    assert_eq!((after.attempts, after.parked), (15, true));
    assert_eq!((after.state, after.ended_at), (LetterState::Dead, None));
    assert!(after.dead_at >= before.dead_at);
}

pub(super) async fn a_letter_that_is_gone_dies_again_as_a_new_one<D: TestDatabase>(
    place: &Place<D>,
) {
    let envelope = keyed("k", b"1");
    let first = place.bury(&[dead(&envelope)]).await[0];
    let table = place.table("dead_letter");
    place.run(&format!("DELETE FROM {table}")).await;
    let again = NewDeadLetter {
        again: Some(first),
        ..dead(&envelope)
    };
    let second = place.bury(&[again]).await[0];
    assert!(second > first);
    assert_eq!(
        place.letter(second).await.message,
        RawMessage::from(envelope)
    );
}

pub(super) async fn a_letter_that_a_policy_drops_is_on_record_and_not_dead<D: TestDatabase>(
    place: &Place<D>,
) {
    let dropped = NewDeadLetter {
        discarded: true,
        ..dead(&keyed("k", b"1"))
    };
    let id = place.bury(&[dropped]).await[0];
    let found = place.letter(id).await;
    assert_eq!(found.state, LetterState::Discarded);
    assert!(found.ended_at.is_some());
    assert_eq!(count(place, &consumer("c")).await, 0);
}

pub(super) async fn only_dead_letters_are_counted<D: TestDatabase>(place: &Place<D>) {
    let letters: Vec<NewDeadLetter> = (0..3).map(|_| dead(&keyed("k", b""))).collect();
    let ids = place.bury(&letters).await;
    place.change(&ids[..1], LetterChange::Replay).await;
    place.change(&ids[1..2], LetterChange::Discard).await;
    assert_eq!(count(place, &consumer("c")).await, 1);
}

async fn now<D: TestDatabase>(place: &Place<D>) -> OffsetDateTime {
    place
        .done(async |store, session| store.now(session).await)
        .await
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
