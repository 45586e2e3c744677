use std::time::Duration;

use bytes::Bytes;
use posta::message::RawMessage;
use posta::operations::operator::HandlerPresence;
use posta::store::{LetterFilter, NewDeadLetter, Origin};

use super::given::{bury, letter, numbered, operator, park};
use super::on_both_databases;
use crate::world::service::effects_service;
use crate::world::{BrokerKind, TestDatabase, World, until};

on_both_databases!(
    a_dry_run_says_what_a_replay_would_do,
    a_dry_run_without_a_running_process_knows_what_was_announced,
);

async fn given<D: TestDatabase>(store: &D::Store) {
    park::<D>(store, "p", 4).await;
    let raw = |key: &str| RawMessage::from(numbered(key, 0));
    let letters = [
        letter(raw("a"), "it broke"),
        letter(raw("a"), "it broke"),
        // JSON, but no message of its type.
        letter(
            RawMessage {
                payload: Bytes::from_static(b"[]"),
                ..raw("b")
            },
            "it broke",
        ),
        // Not even JSON.
        letter(
            RawMessage {
                payload: Bytes::from_static(b"{"),
                ..raw("c")
            },
            "it broke",
        ),
        letter(
            RawMessage {
                version: Some(-1),
                ..raw("d")
            },
            "it broke",
        ),
        letter(
            RawMessage {
                message_type: Some("test.gone".to_owned()),
                key: None,
                ..raw("e")
            },
            "it broke",
        ),
        NewDeadLetter {
            origin: Origin::Dispatch,
            ..letter(raw("a"), "it broke")
        },
    ];
    bury::<D>(store, &letters).await;
}

async fn a_dry_run_says_what_a_replay_would_do<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    given::<D>(&world.store()).await;
    let posta = effects_service(&world).await;
    let operator = posta.operator("ada").unwrap();
    let all = LetterFilter::default();
    let dry = operator.dry_run(&all).await.unwrap();
    assert_eq!(
        (dry.letters, dry.keys_total, dry.without_key),
        (8, 6, 1),
        "{dry:#?}"
    );
    assert_eq!(
        (dry.successors, dry.invalid, dry.older_than_retention),
        (4, 1, 0)
    );
    let key = |name: &str| {
        let of_key = dry.keys.iter().filter(|share| share.key == name);
        of_key
            .map(|share| (share.letters, share.successors, share.parked))
            .collect::<Vec<_>>()
    };
    assert_eq!(key("p"), [(1, 4, true)]);
    // The same key at the two ends is two.
    assert_eq!(key("a"), [(2, 0, false), (1, 0, false)]);
    let of_type = |dispatch: bool, name: &str| {
        let mut found = dry.types.iter().filter(|share| {
            (share.origin == Origin::Dispatch) == dispatch
                && share.message_type.as_deref() == Some(name)
        });
        let share = found.next().expect("a share");
        (
            share.handler.clone(),
            share.decoding,
            share.undecodable,
            share.unknown,
        )
    };
    assert_eq!(
        of_type(false, "test.numbered"),
        (HandlerPresence::Here, 4, 2, 0)
    );
    assert_eq!(
        of_type(false, "test.gone"),
        (HandlerPresence::Absent, 1, 0, 0)
    );
    assert_eq!(
        of_type(true, "test.numbered"),
        (HandlerPresence::NotNeeded, 1, 0, 0)
    );
    assert_eq!(dry.doubts.len(), 3, "{dry:#?}");
    // Everything is older than a retention of nothing.
    let forgetful = operator.clone().inbox_retention(Duration::ZERO);
    assert_eq!(
        forgetful.dry_run(&all).await.unwrap().older_than_retention,
        8
    );
    assert!(
        operator.record(None, 10).await.unwrap().is_empty(),
        "nothing was done"
    );
    posta.stop().await.unwrap();
}

async fn a_dry_run_without_a_running_process_knows_what_was_announced<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    given::<D>(&world.store()).await;
    let operator = operator(&world, "ada");
    let all = LetterFilter::default();
    let share = async || {
        let dry = operator.dry_run(&all).await.unwrap();
        let mut found = dry.types.into_iter().filter(|share| {
            share.origin != Origin::Dispatch
                && share.message_type.as_deref() == Some("test.numbered")
        });
        found.next().expect("a share")
    };
    let before = share().await;
    assert_eq!(before.handler, HandlerPresence::Absent);
    // Only what is no JSON at all can be told.
    assert_eq!(
        (before.decoding, before.undecodable, before.unknown),
        (5, 1, 0)
    );
    let posta = effects_service(&world).await;
    until("the service has said what it handles", async || {
        matches!(
            share().await.handler,
            HandlerPresence::Announced { version: 1, .. }
        )
    })
    .await;
    posta.stop().await.unwrap();
}
