use posta::operations::operator::RunOrder;
use posta::store::{LetterFilter, RunCounts, RunState};

use super::given::{bury_numbers, operator};
use super::on_both_databases;
use super::runs::{until_replayed, until_run};
use crate::world::child::{Orders, Service};
use crate::world::effects::{Verdict, effects_of, judge};
use crate::world::service::{EFFECTS, expected, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World};

on_both_databases!(
    a_run_of_ten_thousand_survives_the_death_of_its_process,
    a_crash_at_any_point_of_a_step_loses_and_doubles_nothing,
);

async fn a_run_of_ten_thousand_survives_the_death_of_its_process<D: TestDatabase>() {
    let (keys, numbers) = (100, 100);
    let total = keys as u64 * numbers as u64;
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    bury_numbers::<D>(&store, keys, numbers).await;
    let operator = operator(&world, "ada");
    let order = RunOrder::default();
    let (run, letters) = operator
        .begin_run(&LetterFilter::default(), order, "all of them")
        .await
        .unwrap();
    assert_eq!(letters, total);
    let victim = Service::start(&world, &Orders::default());
    until_replayed(&operator, run, total / 10).await;
    victim.kill();
    let left = operator.run(run).await.unwrap();
    assert_eq!(left.state, RunState::Running);
    let RunCounts {
        waiting,
        replaying,
        replayed,
        failed,
        left,
    } = left.counts;
    assert!(waiting > 0, "it was killed in the middle");
    assert_eq!(waiting + replaying + replayed, total);
    assert_eq!((failed, left), (0, 0));
    let survivor = Service::start(&world, &Orders::default());
    let finished = until_run(&operator, run, RunState::Finished).await;
    assert_eq!(
        finished.counts,
        RunCounts {
            replayed: total,
            ..RunCounts::default()
        }
    );
    until_quiet::<D>(&store, EFFECTS, total as usize).await;
    survivor.stop().await;
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(
        judge(&effects, &expected(keys, numbers)),
        Verdict::default()
    );
}

async fn a_crash_at_any_point_of_a_step_loses_and_doubles_nothing<D: TestDatabase>() {
    let (keys, numbers) = (10, 60);
    let total = keys as u64 * numbers as u64;
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    bury_numbers::<D>(&store, keys, numbers).await;
    let operator = operator(&world, "ada");
    let order = RunOrder {
        rate: Some(200),
        failures_max: Some(50),
    };
    let (run, _) = operator
        .begin_run(&LetterFilter::default(), order, "all of them")
        .await
        .unwrap();
    for point in ["replay.settled", "replay.stepped", "replay.committed:2"] {
        let orders = Orders {
            crash_at: Some(point.to_owned()),
            ..Orders::default()
        };
        Service::start(&world, &orders).died().await;
        let found = operator.run(run).await.unwrap();
        assert_eq!(found.state, RunState::Running, "{point}");
        assert!(found.counts.waiting > 0, "{point}");
    }
    let survivor = Service::start(&world, &Orders::default());
    let finished = until_run(&operator, run, RunState::Finished).await;
    assert_eq!(
        finished.counts,
        RunCounts {
            replayed: total,
            ..RunCounts::default()
        }
    );
    until_quiet::<D>(&store, EFFECTS, total as usize).await;
    survivor.stop().await;
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(
        judge(&effects, &expected(keys, numbers)),
        Verdict::default()
    );
    let replays = operator.record(None, 1_000).await.unwrap();
    let replays = replays
        .iter()
        .filter(|action| action.what.action == "replay")
        .count();
    assert_eq!(
        replays as u64, total,
        "a step that was rolled back is on no record"
    );
}
