//! In which order a run takes a key's letters, and what it does with those that would wait.

use bytes::Bytes;
use posta::message::RawMessage;
use posta::operations::operator::RunOrder;
use posta::store::{LetterFilter, LetterId, LetterState, RunCounts, RunState};

use super::given::{bury, letter, numbered, operator, park};
use super::on_both_databases;
use super::runs::until_run;
use crate::world::effects::{Verdict, effects_of, judge};
use crate::world::service::{EFFECTS, effects_service, expected};
use crate::world::{BrokerKind, TestDatabase, World};

on_both_databases!(
    a_keys_place_goes_before_its_letters_that_have_none,
    what_would_wait_for_a_letter_outside_of_the_run_is_left_out,
    what_waits_for_a_letter_that_died_again_is_taken_back,
);

/// A run that lets so many die.
const fn careful(failures_max: u32) -> RunOrder {
    RunOrder {
        rate: None,
        failures_max: Some(failures_max),
    }
}

fn of(ids: &[LetterId]) -> LetterFilter {
    LetterFilter {
        ids: ids.to_vec(),
        ..LetterFilter::default()
    }
}

/// A letter that was skipped or restored has no place, and may be older than its key's place: sent
/// first it would wait behind that place, and the place for it.
async fn a_keys_place_goes_before_its_letters_that_have_none<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let late = bury::<D>(&store, &[letter(numbered("k0", 3), "it broke")]).await[0];
    let head = park::<D>(&store, "k0", 2).await;
    assert!(late < head);
    let operator = operator(&world, "ada");
    let (run, letters) = operator
        .begin_run(&of(&[late, head]), careful(1), "mended")
        .await
        .unwrap();
    assert_eq!(letters, 2);
    let posta = effects_service(&world).await;
    let found = until_run(&operator, run, RunState::Finished).await;
    let replayed = RunCounts {
        replayed: 2,
        ..RunCounts::default()
    };
    assert_eq!(found.counts, replayed);
    posta.stop().await.unwrap();
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(1, 4)), Verdict::default());
}

async fn what_would_wait_for_a_letter_outside_of_the_run_is_left_out<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let head = park::<D>(&store, "k0", 1).await;
    let letters = [numbered("k0", 2), numbered("k1", 0)].map(|it| letter(it, "it broke"));
    let ids = bury::<D>(&store, &letters).await;
    let operator = operator(&world, "ada");
    let foreseen = async |filter| operator.dry_run(&filter).await.unwrap().blocked;
    assert_eq!(foreseen(of(&ids)).await, 1);
    assert_eq!(foreseen(LetterFilter::default()).await, 0);
    let (run, letters) = operator
        .begin_run(&of(&ids), careful(1), "mended")
        .await
        .unwrap();
    assert_eq!(letters, 2);
    let posta = effects_service(&world).await;
    let found = until_run(&operator, run, RunState::Finished).await;
    let one_left = RunCounts {
        replayed: 1,
        left: 1,
        ..RunCounts::default()
    };
    assert_eq!(found.counts, one_left);
    let shown = operator.show(ids[0], 0).await.unwrap();
    assert_eq!(shown.letter.state, LetterState::Dead);
    assert_eq!(shown.letter.replays, 0, "it was not even tried");
    let leave = &shown.actions[0].what;
    assert_eq!(leave.action, "leave");
    assert_eq!(
        leave.details,
        format!("its key waits for letter {head}, which this run does not move")
    );
    // With it, it goes, behind what waits there.
    let all = LetterFilter::default();
    let (run, _) = operator.begin_run(&all, careful(1), "both").await.unwrap();
    until_run(&operator, run, RunState::Finished).await;
    posta.stop().await.unwrap();
    let mut effects = effects_of::<D>(&store, EFFECTS).await;
    effects.retain(|effect| effect.key == "k0");
    assert_eq!(judge(&effects, &expected(1, 3)), Verdict::default());
}

async fn what_waits_for_a_letter_that_died_again_is_taken_back<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let undecodable = RawMessage {
        payload: Bytes::from_static(b"{"),
        ..numbered("k0", 0).into()
    };
    let letters = [
        letter(undecodable, "it broke"),
        letter(numbered("k0", 1), "it broke"),
        letter(numbered("k1", 0), "it broke"),
    ];
    let ids = bury::<D>(&store, &letters).await;
    let operator = operator(&world, "ada");
    let (run, letters) = operator
        .begin_run(&of(&ids), careful(2), "perhaps")
        .await
        .unwrap();
    assert_eq!(letters, 3);
    let posta = effects_service(&world).await;
    let found = until_run(&operator, run, RunState::Finished).await;
    let one_of_each = RunCounts {
        replayed: 1,
        failed: 1,
        left: 1,
        ..RunCounts::default()
    };
    assert_eq!(found.counts, one_of_each);
    let behind = operator.show(ids[1], 0).await.unwrap();
    assert_eq!(behind.letter.state, LetterState::Dead);
    assert_eq!(behind.actions[0].what.action, "leave");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(effects.len(), 1, "only the other key's");
    // Nothing of it is left on its way: it can go once its key does.
    operator.discard(&ids[..1], "it is broken").await.unwrap();
    operator.replay(ids[1], "now").await.unwrap();
    super::bug::until_letter(&operator, ids[1], LetterState::Replayed).await;
    posta.stop().await.unwrap();
}
