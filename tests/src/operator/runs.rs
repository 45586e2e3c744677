use std::time::{Duration, Instant};

use posta::operations::Operator;
use posta::operations::operator::{OperatorErrorKind, RunOrder};
use posta::store::{
    LetterFilter, LetterState, Origin, ReplayRun, ReplayStore, RunCounts, RunId, RunState, Store,
};

use super::bug::{BILLING, Bug, ada, invoice, service, until_dead};
use super::given::{bury, bury_numbers, letter, numbered, operator, park};
use super::on_both_databases;
use crate::world::effects::{Verdict, effects_of, judge};
use crate::world::service::{EFFECTS, effects_service, expected, until_quiet};
use crate::world::{BrokerKind, PATIENCE, TestDatabase, World, until};

on_both_databases!(
    a_selection_is_frozen_when_its_run_begins,
    a_run_takes_parked_keys_in_order,
    a_run_stops_after_so_many_failures_and_goes_on_when_it_is_resumed,
    a_paused_run_rests_until_it_is_resumed,
    a_run_cancelled_half_way_leaves_a_clear_state,
    a_run_leaves_out_what_is_not_dead_or_no_message,
);

/// Waits until a run is in a state; returns it. As long as letters get on it may take its time.
pub(super) async fn until_run<D: TestDatabase>(
    operator: &Operator<D>,
    run: RunId,
    state: RunState,
) -> ReplayRun {
    let mut seen = (seen(operator, run).await, Instant::now());
    while seen.0.state != state {
        // Every now and then: looking takes part in the work that it looks at.
        actix_rt::time::sleep(Duration::from_millis(200)).await;
        let now = self::seen(operator, run).await;
        if now.counts != seen.0.counts || now.state != seen.0.state {
            seen = (now, Instant::now());
        }
        assert!(
            seen.1.elapsed() < PATIENCE,
            "in vain waited until run {run} is {}: {:?}",
            state.as_str(),
            seen.0
        );
    }
    operator.run(run).await.unwrap()
}

/// Waits until so many letters of a run are through.
pub(super) async fn until_replayed<D: TestDatabase>(
    operator: &Operator<D>,
    run: RunId,
    letters: u64,
) {
    until(
        &format!("{letters} letters of run {run} are through"),
        async || seen(operator, run).await.counts.replayed >= letters,
    )
    .await;
}

/// A run as its last step left it.
async fn seen<D: TestDatabase>(operator: &Operator<D>, run: RunId) -> ReplayRun {
    let store = operator.store();
    let mut session = store.begin_read().await.unwrap();
    let run = store.runs(&mut session, Some(run), 1).await.unwrap();
    session.commit().await.unwrap();
    run.into_iter().next().expect("the run")
}

fn all() -> LetterFilter {
    LetterFilter::default()
}

async fn a_selection_is_frozen_when_its_run_begins<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    bury_numbers::<D>(&store, 3, 2).await;
    let operator = operator(&world, "ada");
    let order = RunOrder::default();
    let (run, letters) = operator
        .begin_run(&all(), order, "all so far")
        .await
        .unwrap();
    assert_eq!(letters, 6);
    let late = bury::<D>(&store, &[letter(numbered("late", 0), "it broke")]).await[0];
    let posta = effects_service(&world).await;
    let found = until_run(&operator, run, RunState::Finished).await;
    assert_eq!(
        found.counts,
        RunCounts {
            replayed: 6,
            ..RunCounts::default()
        }
    );
    assert!(found.ended_at.is_some());
    let state = operator.show(late, 0).await.unwrap().letter.state;
    assert_eq!(state, LetterState::Dead);
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(3, 2)), Verdict::default());
    let record = operator.record(None, 100).await.unwrap();
    assert_eq!(record.len(), 7, "the run and each of its letters");
    assert!(
        record
            .iter()
            .all(|action| action.what.run == Some(run) && action.what.who == "ada")
    );
    let ended = operator.cancel(run, "too late").await.unwrap_err();
    assert_eq!(ended.kind(), OperatorErrorKind::State);
    posta.stop().await.unwrap();
}

async fn a_run_takes_parked_keys_in_order<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    for key in 0..10 {
        park::<D>(&store, &format!("k{key}"), 30).await;
    }
    let posta = effects_service(&world).await;
    let operator = posta.operator("ada").unwrap();
    let order = RunOrder::default();
    let (run, letters) = operator.begin_run(&all(), order, "mended").await.unwrap();
    assert_eq!(letters, 10);
    until_run(&operator, run, RunState::Finished).await;
    until_quiet::<D>(&store, EFFECTS, 310).await;
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(10, 31)), Verdict::default());
    posta.stop().await.unwrap();
}

async fn a_run_stops_after_so_many_failures_and_goes_on_when_it_is_resumed<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let (store, bug) = (world.store(), Bug::default());
    let posta = service(&world, &bug).await;
    invoice(&posta, 20, 2).await;
    let operator = ada(&posta);
    until_dead(&operator, 20, 20).await;
    let order = RunOrder {
        rate: None,
        failures_max: Some(3),
    };
    let (run, letters) = operator.begin_run(&all(), order, "perhaps").await.unwrap();
    assert_eq!(letters, 20);
    let stopped = until_run(&operator, run, RunState::Stopped).await;
    let expected_counts = RunCounts {
        waiting: 17,
        failed: 3,
        ..RunCounts::default()
    };
    assert_eq!(
        stopped.counts, expected_counts,
        "exactly as many as it allows"
    );
    assert_eq!(stopped.ended_at, None);
    until_dead(&operator, 20, 20).await;
    let stop = operator.record(None, 1).await.unwrap().remove(0).what;
    assert_eq!((stop.who.as_str(), stop.action.as_str()), ("posta", "stop"));
    // Resumed with the bug, it stops after three more.
    operator.resume(run, "once more").await.unwrap();
    until("three more have died", async || {
        let found = operator.run(run).await.unwrap();
        found.state == RunState::Stopped && found.counts.failed == 6
    })
    .await;
    bug.mend();
    operator.resume(run, "mended").await.unwrap();
    let finished = until_run(&operator, run, RunState::Finished).await;
    assert_eq!(
        finished.counts,
        RunCounts {
            replayed: 14,
            failed: 6,
            ..RunCounts::default()
        }
    );
    until("the keys that went on are handled", async || {
        effects_of::<D>(&store, BILLING).await.len() == 28
    })
    .await;
    let (run, letters) = operator.begin_run(&all(), order, "the rest").await.unwrap();
    assert_eq!(letters, 6);
    until_run(&operator, run, RunState::Finished).await;
    until_quiet::<D>(&store, BILLING, 40).await;
    let effects = effects_of::<D>(&store, BILLING).await;
    assert_eq!(judge(&effects, &expected(20, 2)), Verdict::default());
    posta.stop().await.unwrap();
}

async fn a_paused_run_rests_until_it_is_resumed<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    bury_numbers::<D>(&store, 10, 4).await;
    let posta = effects_service(&world).await;
    let operator = posta.operator("ada").unwrap();
    let slow = RunOrder {
        rate: Some(20),
        failures_max: None,
    };
    let (run, _) = operator.begin_run(&all(), slow, "slowly").await.unwrap();
    until("it has begun", async || {
        operator.run(run).await.unwrap().counts.replayed > 0
    })
    .await;
    operator.pause(run, "lunch").await.unwrap();
    let paused = operator.run(run).await.unwrap();
    assert_eq!(paused.state, RunState::Paused);
    assert!(paused.counts.waiting > 0, "{paused:?}");
    let again = operator.pause(run, "lunch").await.unwrap_err();
    assert_eq!(
        again.to_string(),
        format!("replay run {run} is paused; it would have to be running")
    );
    // Another run goes on meanwhile: the replayer has looked, and left this one alone.
    bury::<D>(&store, &[letter(numbered("other", 0), "it broke")]).await;
    let other = LetterFilter {
        key: Some("other".to_owned()),
        ..all()
    };
    let order = RunOrder::default();
    let (other, _) = operator.begin_run(&other, order, "at once").await.unwrap();
    until_run(&operator, other, RunState::Finished).await;
    let mut session = store.begin().await.unwrap();
    assert_eq!(store.next_step(&mut session).await.unwrap(), None);
    session.commit().await.unwrap();
    let still = operator.run(run).await.unwrap();
    assert_eq!(still.counts.waiting, paused.counts.waiting);
    assert_eq!(still.state, RunState::Paused);
    operator.resume(run, "back").await.unwrap();
    let finished = until_run(&operator, run, RunState::Finished).await;
    assert_eq!(
        finished.counts,
        RunCounts {
            replayed: 40,
            ..RunCounts::default()
        }
    );
    posta.stop().await.unwrap();
    let mut effects = effects_of::<D>(&store, EFFECTS).await;
    effects.retain(|effect| effect.key != "other");
    assert_eq!(judge(&effects, &expected(10, 4)), Verdict::default());
}

async fn a_run_cancelled_half_way_leaves_a_clear_state<D: TestDatabase>() {
    let (keys, numbers) = (20, 100);
    let total = keys as u64 * numbers as u64;
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    bury_numbers::<D>(&store, keys, numbers).await;
    let posta = effects_service(&world).await;
    let operator = posta.operator("ada").unwrap();
    let order = RunOrder {
        rate: Some(1_000),
        failures_max: None,
    };
    let (run, letters) = operator.begin_run(&all(), order, "all").await.unwrap();
    assert_eq!(letters, total);
    until_replayed(&operator, run, total / 10).await;
    operator.cancel(run, "wrong fix").await.unwrap();
    until("what was on its way is through", async || {
        operator.run(run).await.unwrap().counts.replaying == 0
    })
    .await;
    let cancelled = operator.run(run).await.unwrap();
    assert_eq!(cancelled.state, RunState::Cancelled);
    let counts = cancelled.counts;
    assert!(counts.waiting > 0 && counts.replayed > 0, "{counts:?}");
    assert_eq!(counts.waiting + counts.replayed, total, "{counts:?}");
    let groups = operator.groups(&all(), 10).await.unwrap();
    assert_eq!(
        groups.iter().map(|group| group.letters).sum::<u64>(),
        counts.waiting
    );
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(effects.len() as u64, counts.replayed);
    let verdict = judge(&effects, &expected(keys, numbers));
    assert_eq!((verdict.doubled, verdict.out_of_order), (0, 0));
    let resumed = operator.resume(run, "after all").await.unwrap_err();
    assert_eq!(resumed.kind(), OperatorErrorKind::State);
    // The rest is another run.
    let order = RunOrder::default();
    let (rest, letters) = operator.begin_run(&all(), order, "the rest").await.unwrap();
    assert_eq!(letters, counts.waiting);
    until_run(&operator, rest, RunState::Finished).await;
    until_quiet::<D>(&store, EFFECTS, total as usize).await;
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(
        judge(&effects, &expected(keys, numbers)),
        Verdict::default()
    );
    posta.stop().await.unwrap();
}

async fn a_run_leaves_out_what_is_not_dead_or_no_message<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let letters = bury_numbers::<D>(&store, 3, 1).await;
    let broken = posta::message::RawMessage {
        version: Some(-1),
        ..numbered("k3", 0).into()
    };
    let broken = bury::<D>(&store, &[letter(broken, "version -1 is out of range")]).await[0];
    let operator = operator(&world, "ada");
    let order = RunOrder::default();
    let (run, count) = operator.begin_run(&all(), order, "all").await.unwrap();
    assert_eq!(count, 4);
    operator
        .discard(&[letters[1]], "not this one")
        .await
        .unwrap();
    let posta = effects_service(&world).await;
    let found = until_run(&operator, run, RunState::Finished).await;
    assert_eq!(
        found.counts,
        RunCounts {
            replayed: 2,
            left: 2,
            ..RunCounts::default()
        }
    );
    let state = async |id| operator.show(id, 0).await.unwrap().letter.state;
    assert_eq!(state(letters[1]).await, LetterState::Discarded);
    assert_eq!(state(broken).await, LetterState::Dead);
    let record = operator
        .record(Some(broken), 1)
        .await
        .unwrap()
        .remove(0)
        .what;
    assert_eq!(record.action, "leave");
    assert_eq!(record.details, "version -1 is out of range");
    assert_eq!(
        operator.show(broken, 0).await.unwrap().letter.origin,
        Origin::Consumer(EFFECTS.to_owned())
    );
    posta.stop().await.unwrap();
}
