//! The long run: round after round on every combination, until the time is over.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::driver;
use super::ground::DatabaseKind;
use super::plan::{Plan, combination};
use super::report::{Combination, Report};
use crate::world::BrokerKind;

/// How long things happen in a round, if there is time for a round on every combination.
const CHAOS: Duration = Duration::from_secs(60);

/// What is asked of a run.
#[derive(Clone, Debug)]
pub(super) struct Order {
    pub(super) time: Duration,
    pub(super) seed: u64,
    pub(super) database: Option<DatabaseKind>,
    pub(super) broker: Option<BrokerKind>,
    /// Below it, what is wrong leaves its evidence.
    pub(super) evidence: PathBuf,
}

/// `tests/faults` calls it, with the order in the environment. As a test of its own it does nothing.
#[test]
fn run_when_asked() {
    let Ok(seconds) = std::env::var("POSTA_TEST_FAULTS_SECONDS") else {
        return;
    };
    let env = |name: &str| std::env::var(format!("POSTA_TEST_FAULTS_{name}")).ok();
    let number = |text: String| text.parse::<u64>().expect("a number");
    let time = Duration::from_secs(number(seconds));
    let order = Order {
        time,
        seed: env("SEED").map(number).expect("a seed"),
        database: env("DATABASE").map(|name| match name.as_str() {
            "sqlite" => DatabaseKind::Sqlite,
            "postgres" => DatabaseKind::Postgres,
            other => panic!("no such database: {other:?}"),
        }),
        broker: env("BROKER").map(|name| match name.as_str() {
            "database" => BrokerKind::Database,
            "rabbitmq" => BrokerKind::RabbitMq,
            other => panic!("no such broker: {other:?}"),
        }),
        evidence: PathBuf::from(env("EVIDENCE").expect("a folder")),
    };
    let report = run(&order, |line| eprintln!("{line}"));
    let out = env("REPORT").expect("a file for the report");
    std::fs::write(out, format!("{report}{}\n", report.json())).expect("a report");
    assert!(report.is_clean(), "something is wrong; see the report");
}

/// Runs rounds; `tell` hears a line after each.
pub(super) fn run(order: &Order, tell: impl Fn(&str)) -> Report {
    let began = Instant::now();
    let mut combinations = Vec::new();
    for database in [DatabaseKind::Sqlite, DatabaseKind::Postgres] {
        for broker in [BrokerKind::Database, BrokerKind::RabbitMq] {
            if order.database.is_none_or(|it| it == database)
                && order.broker.is_none_or(|it| it == broker)
            {
                let name = combination(database, broker);
                combinations.push((database, Combination::new(name, broker)));
            }
        }
    }
    // The rest of a round is for what comes to rest.
    let combined = u32::try_from(combinations.len()).unwrap_or(u32::MAX);
    let chaos = CHAOS.min(order.time * 2 / 3 / combined);
    let mut round = 0;
    // Each as often as the others, and all at least once.
    while began.elapsed() < order.time || round < combinations.len() as u64 {
        let which = round as usize % combinations.len();
        let (database, combination) = &mut combinations[which];
        let seed = order.seed + round;
        let broker = combination.broker;
        let plan = Plan::of_everything(*database, broker, seed, chaos, &order.evidence);
        let at = began.elapsed().as_secs();
        let outcome = driver::run(&plan, &mut combination.tally);
        combination.add(&plan, &outcome);
        let took = began.elapsed().as_secs() - at;
        tell(&format!(
            "{at:5} s  {:<18} seed {seed}: {} messages, {} faults, {} looks in {took} s; {}",
            combination.name,
            outcome.messages,
            outcome.tally.total() + outcome.faults.values().sum::<u64>(),
            outcome.looks,
            match outcome.verdict.is_clean() {
                true => "all is well".to_owned(),
                false => format!("WRONG: {:.300}", outcome.verdict.broken.join("; ")),
            }
        ));
        round += 1;
    }
    let database = order.database.map(|database| match database {
        DatabaseKind::Sqlite => " --database sqlite",
        DatabaseKind::Postgres => " --database postgres",
    });
    let broker = order.broker.map(|broker| match broker {
        BrokerKind::Database => " --broker database",
        BrokerKind::RabbitMq => " --broker rabbitmq",
    });
    Report {
        selection: [database, broker].into_iter().flatten().collect(),
        seed: order.seed,
        minutes: order.time.as_secs_f64() / 60.0,
        combinations: combinations.into_iter().map(|(_, it)| it).collect(),
    }
}
