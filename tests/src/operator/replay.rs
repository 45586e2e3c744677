use std::collections::BTreeMap;

use posta::message::RawMessage;
use posta::operations::operator::{OperatorErrorKind, RunOrder};
use posta::store::{LetterFilter, LetterState, RunState};

use super::bug::{BILLING, Bug, ada, invoice, service, until_dead, until_letter};
use super::given::{bury, letter, numbered, operator};
use super::on_both_databases;
use crate::world::effects::{Verdict, effects_of, judge};
use crate::world::service::{EFFECTS, effects_service, expected, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

mod combinations {
    use super::*;

    on_every_combination!(
        a_letter_is_replayed_and_its_successors_follow_in_order,
        a_key_is_replayed_alone,
    );

    async fn a_letter_is_replayed_and_its_successors_follow_in_order<D: TestDatabase>(
        broker: BrokerKind,
    ) {
        super::a_letter_is_replayed_and_its_successors_follow_in_order::<D>(broker).await;
    }

    async fn a_key_is_replayed_alone<D: TestDatabase>(broker: BrokerKind) {
        super::a_key_is_replayed_alone::<D>(broker).await;
    }
}

on_both_databases!(
    a_replay_that_fails_again_is_the_same_letter,
    of_two_operators_who_replay_a_letter_at_once_one_wins,
    a_message_without_an_id_gets_one,
    a_message_that_is_still_none_stays_dead,
);

async fn a_letter_is_replayed_and_its_successors_follow_in_order<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let (store, bug) = (world.store(), Bug::default());
    let posta = service(&world, &bug).await;
    invoice(&posta, 2, 20).await;
    let operator = ada(&posta);
    let letters = until_dead(&operator, 2, 38).await;
    assert!(
        letters
            .iter()
            .all(|letter| letter.parked && letter.reason == "permanent")
    );
    assert!(effects_of::<D>(&store, BILLING).await.is_empty());
    bug.mend();
    operator.replay(letters[0].id, "mended").await.unwrap();
    until_letter(&operator, letters[0].id, LetterState::Replayed).await;
    operator.replay(letters[1].id, "mended").await.unwrap();
    until_quiet::<D>(&store, BILLING, 40).await;
    let effects = effects_of::<D>(&store, BILLING).await;
    assert_eq!(judge(&effects, &expected(2, 20)), Verdict::default());
    // The message id stays.
    let shown = operator.show(letters[0].id, 0).await.unwrap();
    assert_eq!(shown.letter.replays, 1);
    assert!(shown.letter.ended_at.is_some() && !shown.letter.parked);
    assert!(
        effects
            .iter()
            .any(|effect| Some(&effect.message_id) == shown.letter.message.id.as_ref())
    );
    let action = &shown.actions[0];
    assert_eq!(
        (
            action.what.who.as_str(),
            action.what.action.as_str(),
            action.what.reason.as_str()
        ),
        ("ada", "replay", "mended")
    );
    // It is through: once is enough.
    let again = operator.replay(letters[0].id, "again").await.unwrap_err();
    assert_eq!(again.kind(), OperatorErrorKind::State);
    posta.stop().await.unwrap();
}

async fn a_key_is_replayed_alone<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let (store, bug) = (world.store(), Bug::default());
    let posta = service(&world, &bug).await;
    invoice(&posta, 3, 10).await;
    let operator = ada(&posta);
    until_dead(&operator, 3, 27).await;
    bug.mend();
    let filter = LetterFilter {
        key: Some("k1".to_owned()),
        ..LetterFilter::default()
    };
    let dry = operator.dry_run(&filter).await.unwrap();
    assert_eq!((dry.letters, dry.keys_total, dry.successors), (1, 1, 9));
    let (run, letters) = operator
        .begin_run(&filter, RunOrder::default(), "k1 first")
        .await
        .unwrap();
    assert_eq!(letters, 1);
    until("the run is finished", async || {
        operator.run(run).await.unwrap().state == RunState::Finished
    })
    .await;
    until("the key's messages are handled", async || {
        effects_of::<D>(&store, BILLING).await.len() == 10
    })
    .await;
    let effects = effects_of::<D>(&store, BILLING).await;
    let expected = BTreeMap::from([("k1".to_owned(), 10)]);
    assert_eq!(judge(&effects, &expected), Verdict::default());
    until_dead(&operator, 2, 18).await;
    posta.stop().await.unwrap();
}

async fn a_replay_that_fails_again_is_the_same_letter<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let (store, bug) = (world.store(), Bug::default());
    let posta = service(&world, &bug).await;
    invoice(&posta, 1, 5).await;
    let operator = ada(&posta);
    let letter = until_dead(&operator, 1, 4).await.remove(0);
    operator.replay(letter.id, "perhaps").await.unwrap();
    until("it is dead again", async || {
        let shown = operator.show(letter.id, 0).await.unwrap().letter;
        shown.replays == 1 && shown.state == LetterState::Dead
    })
    .await;
    let again = until_dead(&operator, 1, 4).await.remove(0);
    assert_eq!((again.id, again.parked), (letter.id, true));
    assert_eq!(again.message, letter.message);
    assert_eq!(
        again.attempts, 1,
        "its attempts began anew, and it failed for good"
    );
    assert!(effects_of::<D>(&store, BILLING).await.is_empty());
    bug.mend();
    operator.replay(letter.id, "mended").await.unwrap();
    until_quiet::<D>(&store, BILLING, 5).await;
    let effects = effects_of::<D>(&store, BILLING).await;
    assert_eq!(judge(&effects, &expected(1, 5)), Verdict::default());
    assert_eq!(operator.show(letter.id, 0).await.unwrap().letter.replays, 2);
    posta.stop().await.unwrap();
}

async fn of_two_operators_who_replay_a_letter_at_once_one_wins<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let new: Vec<_> = (0..20)
        .map(|number| letter(numbered("k", number), "it broke"))
        .collect();
    let letters = bury::<D>(&store, &new).await;
    let (ada, bob) = (operator(&world, "ada"), operator(&world, "bob"));
    for &letter in &letters {
        let (first, second) =
            futures_util::join!(ada.replay(letter, "mine"), bob.replay(letter, "mine"));
        assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
        let lost = first.and(second).unwrap_err();
        assert_eq!(lost.kind(), OperatorErrorKind::State);
        assert_eq!(
            lost.to_string(),
            format!("letter {letter} is replaying; it would have to be dead")
        );
        assert_eq!(ada.record(Some(letter), 10).await.unwrap().len(), 1);
    }
    let posta = effects_service(&world).await;
    until_quiet::<D>(&store, EFFECTS, 20).await;
    posta.stop().await.unwrap();
    let effects = effects_of::<D>(&store, EFFECTS).await;
    let expected = BTreeMap::from([("k".to_owned(), 20)]);
    assert_eq!(judge(&effects, &expected), Verdict::default());
}

async fn a_message_without_an_id_gets_one<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let nameless = RawMessage {
        id: None,
        ..numbered("k", 0).into()
    };
    let letters = bury::<D>(&store, &[letter(nameless, "message id is missing")]).await;
    let operator = operator(&world, "ada");
    operator
        .replay(letters[0], "it can be handled all the same")
        .await
        .unwrap();
    let record = operator.record(Some(letters[0]), 1).await.unwrap();
    assert!(
        record[0].what.details.contains("new message id"),
        "{record:?}"
    );
    let posta = effects_service(&world).await;
    until_quiet::<D>(&store, EFFECTS, 1).await;
    posta.stop().await.unwrap();
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert!(record[0].what.details.contains(&effects[0].message_id));
}

async fn a_message_that_is_still_none_stays_dead<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let typeless = RawMessage {
        message_type: None,
        ..numbered("k", 0).into()
    };
    let letters = bury::<D>(&store, &[letter(typeless, "message type is missing")]).await;
    let operator = operator(&world, "ada");
    let refused = operator.replay(letters[0], "perhaps").await.unwrap_err();
    assert_eq!(refused.kind(), OperatorErrorKind::Refused);
    assert_eq!(
        refused.to_string(),
        format!(
            "letter {} cannot be put back: message type is missing",
            letters[0]
        )
    );
    let shown = operator.show(letters[0], 0).await.unwrap();
    assert_eq!(
        (shown.letter.state, shown.letter.replays),
        (LetterState::Dead, 0)
    );
    assert!(shown.actions.is_empty());
}
