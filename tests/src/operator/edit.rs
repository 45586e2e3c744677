use bytes::Bytes;
use posta::operations::operator::{Decodes, Edit, OperatorErrorKind};
use posta::store::LetterState;

use super::bug::{BILLING, Bug, Invoice, ada, invoice, service, until_dead};
use super::given::{bury, letter, numbered, operator};
use super::on_both_databases;
use crate::world::effects::{Verdict, effects_of, judge};
use crate::world::service::{expected, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination};

mod combinations {
    use super::*;

    on_every_combination!(an_edited_message_takes_effect_once_and_the_original_never);

    async fn an_edited_message_takes_effect_once_and_the_original_never<D: TestDatabase>(
        broker: BrokerKind,
    ) {
        super::an_edited_message_takes_effect_once_and_the_original_never::<D>(broker).await;
    }
}

on_both_databases!(
    of_two_edits_of_one_revision_one_wins,
    only_a_dead_letter_is_edited_and_within_limits,
);

async fn an_edited_message_takes_effect_once_and_the_original_never<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let (store, bug) = (world.store(), Bug::default());
    let posta = service(&world, &bug).await;
    invoice(&posta, 1, 6).await;
    let operator = ada(&posta);
    let dead = until_dead(&operator, 1, 5).await.remove(0);
    // The bug stays: it is the message that is mended.
    let mended = Invoice {
        key: "k0".to_owned(),
        number: 0,
        amount: 5,
    };
    let edit = Edit {
        payload: serde_json::to_vec(&mended).unwrap().into(),
        base: Some(0),
        ..Edit::default()
    };
    let preview = operator.preview_edit(dead.id, &edit).await.unwrap();
    assert_eq!(
        (preview.revision, &preview.before),
        (1, &dead.message.payload)
    );
    assert_eq!(operator.show(dead.id, 0).await.unwrap().letter.revision, 0);
    let edited = operator
        .edit(dead.id, &edit, "the sign was wrong")
        .await
        .unwrap();
    assert_eq!((edited.revision, &edited.after), (1, &edit.payload));
    assert_eq!(edited.decodes, Decodes::Yes);
    operator.replay(dead.id, "edited").await.unwrap();
    until_quiet::<D>(&store, BILLING, 6).await;
    // A late copy of the original: its id was handled.
    let original = dead.message.clone().parse().unwrap();
    posta
        .transaction(async |tx| {
            tx.enqueue_envelope(original)?;
            tx.enqueue(&Invoice {
                key: "k0".to_owned(),
                number: 6,
                amount: 5,
            })?;
            Ok::<_, anyhow::Error>(())
        })
        .await
        .unwrap();
    until_quiet::<D>(&store, BILLING, 7).await;
    let effects = effects_of::<D>(&store, BILLING).await;
    assert_eq!(judge(&effects, &expected(1, 7)), Verdict::default());
    assert_eq!(effects[0].payload, edit.payload);
    assert_eq!(
        Some(&effects[0].message_id),
        dead.message.id.as_ref(),
        "the id stays"
    );
    let shown = operator.show(dead.id, 0).await.unwrap();
    assert_eq!(shown.letter.state, LetterState::Replayed);
    let payloads: Vec<&Bytes> = shown
        .revisions
        .iter()
        .map(|revision| &revision.payload)
        .collect();
    assert_eq!(
        payloads,
        [&dead.message.payload, &edit.payload],
        "the original is kept"
    );
    assert_eq!(shown.revisions[1].who, "ada");
    assert_eq!(shown.revisions[1].reason, "the sign was wrong");
    let actions: Vec<&str> = shown
        .actions
        .iter()
        .map(|action| action.what.action.as_str())
        .collect();
    assert_eq!(actions, ["replay", "edit"]);
    posta.stop().await.unwrap();
}

async fn of_two_edits_of_one_revision_one_wins<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let id = bury::<D>(&store, &[letter(numbered("k", 0), "it broke")]).await[0];
    let (ada, bob) = (operator(&world, "ada"), operator(&world, "bob"));
    let edit = |text: &'static str| Edit {
        payload: Bytes::from_static(text.as_bytes()),
        base: Some(0),
        ..Edit::default()
    };
    let (first, second) = (edit("1"), edit("2"));
    let (first, second) =
        futures_util::join!(ada.edit(id, &first, "mine"), bob.edit(id, &second, "mine"));
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    let lost = first.and(second).unwrap_err();
    assert_eq!(lost.kind(), OperatorErrorKind::State);
    assert!(
        lost.to_string().contains("is at revision 1 meanwhile"),
        "{lost}"
    );
    let shown = ada.show(id, 0).await.unwrap();
    assert_eq!((shown.revisions.len(), shown.actions.len()), (2, 1));
}

async fn only_a_dead_letter_is_edited_and_within_limits<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let message = numbered("k", 0);
    let id = bury::<D>(&store, &[letter(message.clone(), "it broke")]).await[0];
    let operator = operator(&world, "ada");
    let edit = |payload: &[u8]| Edit {
        payload: Bytes::copy_from_slice(payload),
        ..Edit::default()
    };
    let wrong = [
        edit(&message.payload),
        edit(&vec![b' '; 16 * 1024 * 1024 + 1]),
        Edit {
            version: Some(0),
            ..edit(b"1")
        },
        Edit {
            content_type: Some(String::new()),
            ..edit(b"1")
        },
        Edit {
            content_type: Some("a\nb".to_owned()),
            ..edit(b"1")
        },
    ];
    for wrong in wrong {
        let refused = operator.edit(id, &wrong, "why").await.unwrap_err();
        assert_eq!(refused.kind(), OperatorErrorKind::Argument, "{refused}");
    }
    let broken = operator.preview_edit(id, &edit(b"{")).await.unwrap();
    assert!(matches!(broken.decodes, Decodes::No(_)));
    let edited = Edit {
        version: Some(2),
        ..edit(b"1")
    };
    let edited = operator
        .edit(id, &edited, "of version 2 now")
        .await
        .unwrap();
    assert_eq!(edited.version, Some(2));
    operator.discard(&[id], "never mind").await.unwrap();
    let late = operator.edit(id, &edit(b"2"), "why").await.unwrap_err();
    assert_eq!(late.kind(), OperatorErrorKind::State);
    assert_eq!(operator.record(Some(id), 10).await.unwrap().len(), 2);
}
