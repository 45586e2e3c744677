use posta::operations::operator::RunOrder;
use posta::store::{LetterFilter, RunState};
use time::OffsetDateTime;

use super::given::{bury_numbers, operator};
use super::on_both_databases;
use super::runs::until_run;
use crate::world::child::{Orders, Service};
use crate::world::{BrokerKind, TestDatabase, World};

on_both_databases!(
    a_run_keeps_its_rate_by_the_databases_clock,
    two_processes_do_not_double_the_rate,
);

/// Letters a second.
const RATE: u32 = 40;
/// Letters of one step at that rate: half a second's.
const STEP: usize = 20;

async fn a_run_keeps_its_rate_by_the_databases_clock<D: TestDatabase>() {
    replayed_by::<D>(1).await;
}

async fn two_processes_do_not_double_the_rate<D: TestDatabase>() {
    replayed_by::<D>(2).await;
}

async fn replayed_by<D: TestDatabase>(processes: usize) {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    bury_numbers::<D>(&world.store(), 20, 6).await;
    let services: Vec<Service> = (0..processes)
        .map(|_| Service::start(&world, &Orders::default()))
        .collect();
    let operator = operator(&world, "ada");
    let order = RunOrder {
        rate: Some(RATE),
        failures_max: None,
    };
    let (run, _) = operator
        .begin_run(&LetterFilter::default(), order, "slowly")
        .await
        .unwrap();
    until_run(&operator, run, RunState::Finished).await;
    for service in services {
        service.stop().await;
    }
    let mut times: Vec<OffsetDateTime> = operator
        .record(None, 1_000)
        .await
        .unwrap()
        .iter()
        .filter(|action| action.what.action == "replay")
        .map(|action| action.done_at)
        .collect();
    times.sort_unstable();
    assert_eq!(times.len(), 120);
    // However long a stretch one looks at: the rate, and one step.
    for (from, first) in times.iter().enumerate() {
        for (to, last) in times.iter().enumerate().skip(from) {
            let letters = to - from + 1;
            let allowed = (*last - *first).as_seconds_f64() * f64::from(RATE) + STEP as f64;
            assert!(
                letters as f64 <= allowed + 0.5,
                "{letters} from {from}, {allowed} allowed"
            );
        }
    }
}
