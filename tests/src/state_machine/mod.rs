//! The failure protocol as a state machine: random sequences of what can happen to messages, to
//! processes and by operators, on both databases, and after each step a look at the tables.
//!
//! Four parts that know little of each other:
//!
//! - [`command`]: what can happen, as a strategy of proptest's;
//! - [`driver`], with [`process`] and [`service`]: the system under test. Two processes, each an
//!   actor system of its own on its own threads, which a crash drops where it stands: its leases
//!   and claims stay behind, its connections break. They know each other by the database alone;
//! - [`model`]: what was asked, and what may become of it;
//! - [`checker`]: judges a snapshot of the tables ([`tables`], read in one statement) by the model.
//!   It holds at every moment, not only in the end, since on the database broker a message moves
//!   from place to place in single transactions: in exactly one place (G2, G3), in its key's order
//!   unless its key was let go (G4), and, once all is at rest, waiting only behind a dead letter of
//!   its own key (G5). In the end everything is mended and replayed, and nothing may be missing.
//!
//! How many sequences: `PROPTEST_CASES`. Which: every sequence has a seed of its own, printed when
//! it fails; `POSTA_TEST_SEED` begins with that one. What threads do is not in the seed, so it may
//! take some runs of a seed to fail again; a shorter sequence that shrinking offers has failed
//! indeed.

mod checker;
mod command;
mod driver;
mod model;
mod process;
mod service;
mod tables;

use std::sync::atomic::{AtomicU64, Ordering};

use posta::{Postgres, Sqlite};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use self::command::{Command, command};
use self::driver::Driver;
use crate::harness;
use crate::world::TestDatabase;

/// Sequences on each database, unless `PROPTEST_CASES` says otherwise.
const CASES: u64 = 24;

/// Longest sequence.
const COMMANDS_MAX: usize = 25;

/// So many sequences run at a time: they mostly wait.
const WORKERS: usize = 4;

/// How long a failing sequence is made shorter, in ms, unless `PROPTEST_MAX_SHRINK_TIME` says
/// otherwise: each try runs as long as the sequence does.
const SHRINK_TIME_MAX: u32 = 120_000;

#[test]
fn sqlite_keeps_every_guarantee_whatever_happens() {
    run::<Sqlite>();
}

#[test]
fn postgres_keeps_every_guarantee_whatever_happens() {
    run::<Postgres>();
}

fn run<D>()
where
    D: TestDatabase + harness::database::TestDatabase,
{
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().expect("a number"))
    };
    let cases = number("PROPTEST_CASES").unwrap_or(CASES);
    let seed = number("POSTA_TEST_SEED").unwrap_or_else(|| u64::from(rand::random::<u32>()));
    println!("{}: {cases} sequences from the seed {seed}", D::KIND);
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(case) =
                    Some(next.fetch_add(1, Ordering::SeqCst)).filter(|n| *n < cases)
                {
                    run_case::<D>(seed + case);
                }
            });
        }
    });
}

/// Runs the sequence of a seed, and shorter ones if it fails.
fn run_case<D>(seed: u64)
where
    D: TestDatabase + harness::database::TestDatabase,
{
    let mut config = ProptestConfig {
        cases: 1,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if config.max_shrink_time == 0 {
        config.max_shrink_time = SHRINK_TIME_MAX;
    }
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(config, rng);
    let commands = prop::collection::vec(command(), 1..=COMMANDS_MAX);
    match runner.run(&commands, |commands| drive::<D>(seed, &commands)) {
        Ok(()) => {}
        Err(TestError::Fail(why, commands)) => {
            panic!("{}, seed {seed}: {commands:#?}\n{why}", D::KIND)
        }
        Err(TestError::Abort(why)) => panic!("{}, seed {seed}: {why}", D::KIND),
    }
}

/// Carries a sequence out on a fresh database.
fn drive<D>(seed: u64, commands: &[Command]) -> Result<(), TestCaseError>
where
    D: TestDatabase + harness::database::TestDatabase,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let outcome = runtime.block_on(async {
        let mut driver = Driver::<D>::begin().await;
        let mut outcome = Ok(());
        for command in commands {
            outcome = driver.obey(command).await;
            if outcome.is_err() {
                break;
            }
        }
        if outcome.is_ok() {
            outcome = driver.finish().await;
        }
        driver.end().await;
        outcome
    });
    if let Err(why) = &outcome {
        // Before it is shrunk, which takes its time.
        eprintln!("{}, seed {seed} has failed: {why}\n{commands:?}", D::KIND);
    }
    outcome.map_err(TestCaseError::fail)
}
