use posta::operations::operator::{OperatorErrorKind, RunOrder};
use posta::store::{LetterFilter, LetterId, LetterState, RunState, Store as _};

use super::bug::until_letter;
use super::given::{bury, letter, numbered, operator, park};
use super::on_both_databases;
use super::runs::until_run;
use crate::world::effects::{Verdict, effects_of, judge, table};
use crate::world::gate::Gate;
use crate::world::service::{
    EFFECTS, Fate, Numbered, builder, effects_service, expected, gated_consumer, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World};

on_both_databases!(
    a_letter_that_nobody_runs_is_recalled_into_its_place,
    a_letter_whose_row_is_gone_is_recalled,
    a_letter_that_a_process_runs_is_not_recalled,
    a_run_goes_on_without_what_was_recalled,
);

async fn a_letter_that_nobody_runs_is_recalled_into_its_place<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let head = park::<D>(&store, "k0", 2).await;
    let operator = operator(&world, "ada");
    let refused = operator.recall(&[head], "why not").await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        format!("letter {head} is dead; it would have to be replaying")
    );
    operator.replay(head, "mended").await.unwrap();
    operator
        .recall(&[head], "its consumer is gone")
        .await
        .unwrap();
    let shown = operator.show(head, 0).await.unwrap();
    let found = &shown.letter;
    assert_eq!(
        (found.state, found.parked, found.successors),
        (LetterState::Dead, true, 2)
    );
    let recall = &shown.actions[0].what;
    assert_eq!(
        (recall.action.as_str(), recall.who.as_str()),
        ("recall", "ada")
    );
    assert_eq!(recall.reason, "its consumer is gone");
    assert_eq!(recall.details, "its key waits for it again");
    // Its successors wait, until it is replayed in earnest.
    let posta = effects_service(&world).await;
    operator.replay(head, "it is back").await.unwrap();
    until_quiet::<D>(&store, EFFECTS, 3).await;
    posta.stop().await.unwrap();
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(1, 3)), Verdict::default());
}

async fn a_letter_whose_row_is_gone_is_recalled<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let head = park::<D>(&store, "k0", 2).await;
    let operator = operator(&world, "ada");
    operator.replay(head, "mended").await.unwrap();
    let mut session = store.begin().await.unwrap();
    let retry = table::<D>(&store, "retry");
    D::run(
        &mut session,
        &format!("DELETE FROM {retry} WHERE dead_letter = {head}"),
    )
    .await
    .unwrap();
    session.commit().await.unwrap();
    for refused in [
        operator.replay(head, "again").await,
        operator.discard(&[head], "drop it").await,
        operator.skip(&[head], "go on").await,
    ] {
        assert_eq!(refused.unwrap_err().kind(), OperatorErrorKind::State);
    }
    operator.recall(&[head], "deleted by hand").await.unwrap();
    let shown = operator.show(head, 0).await.unwrap();
    assert_eq!(
        (shown.letter.state, shown.letter.parked),
        (LetterState::Dead, false)
    );
    assert_eq!(
        shown.actions[0].what.details,
        "its row was gone; its key goes on"
    );
    let posta = effects_service(&world).await;
    until_quiet::<D>(&store, EFFECTS, 2).await;
    operator.replay(head, "late").await.unwrap();
    until_letter(&operator, head, LetterState::Replayed).await;
    posta.stop().await.unwrap();
}

async fn a_letter_that_a_process_runs_is_not_recalled<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let message = Numbered {
        key: "k0".to_owned(),
        number: 0,
        fate: Fate::Wait,
    };
    let message = posta::Envelope::of(&message).unwrap();
    let waiting = bury::<D>(&store, &[letter(message, "it broke")]).await[0];
    let gate = Gate::closed();
    let posta = builder(&world)
        .consumer(gated_consumer::<D>(&gate))
        .start()
        .await
        .expect("a running service");
    let operator = posta.operator("ada").unwrap();
    operator.replay(waiting, "mended").await.unwrap();
    gate.until_arrived(1).await;
    // On SQLite the handler's transaction keeps everybody from writing.
    if D::KIND != "sqlite" {
        let refused = operator.recall(&[waiting], "it hangs").await.unwrap_err();
        assert_eq!(refused.kind(), OperatorErrorKind::State);
        assert_eq!(
            refused.to_string(),
            format!("a running process is at letter {waiting}; it will say what becomes of it")
        );
    }
    gate.open();
    until_letter(&operator, waiting, LetterState::Replayed).await;
    let done = operator.recall(&[waiting], "too late").await.unwrap_err();
    assert_eq!(done.kind(), OperatorErrorKind::State);
    let missing = LetterId(i64::MAX);
    let done = operator.recall(&[missing], "what").await.unwrap_err();
    assert_eq!(done.kind(), OperatorErrorKind::NotFound);
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(1, 1)), Verdict::default());
    posta.stop().await.unwrap();
}

/// A letter of a consumer that is gone takes a run's only room, until it is recalled.
async fn a_run_goes_on_without_what_was_recalled<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let gone = posta::store::NewDeadLetter {
        origin: posta::store::Origin::Consumer("gone".to_owned()),
        ..letter(numbered("k0", 0), "it broke")
    };
    let ids = bury::<D>(&store, &[gone, letter(numbered("k1", 0), "it broke")]).await;
    let posta = effects_service(&world).await;
    let operator = posta.operator("ada").unwrap();
    let order = RunOrder {
        rate: None,
        failures_max: Some(1),
    };
    let all = LetterFilter::default();
    let (run, _) = operator.begin_run(&all, order, "mended").await.unwrap();
    until_letter(&operator, ids[0], LetterState::Replaying).await;
    operator
        .recall(&ids[..1], "there is no such")
        .await
        .unwrap();
    let found = until_run(&operator, run, RunState::Finished).await;
    assert_eq!(
        (
            found.counts.replayed,
            found.counts.left,
            found.counts.failed
        ),
        (1, 1, 0)
    );
    let state = operator.show(ids[0], 0).await.unwrap().letter.state;
    assert_eq!(state, LetterState::Dead);
    posta.stop().await.unwrap();
}
