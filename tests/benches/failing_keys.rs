//! 1,000 keys, of which 10 always fail: at which rate are the other 990 keys' messages handled,
//! against a run without failures?
//!
//! ```text
//! cargo bench -p posta-tests --bench failing_keys [-- --messages 50 --rounds 5 --only sqlite]
//! ```
//!
//! On PostgreSQL with RabbitMQ, from the variables that `tests/run` sets (without them it fails),
//! and on SQLite with the database broker. What is measured is handling alone: the queues are full
//! when it begins. Runs with and without failures take turns, and medians of the rates are compared;
//! the rate of a run is that of the 990 keys' messages, from the first effect to their last, by the
//! database's clock.
//!
//! In every run: nothing lost, nothing twice, nothing out of order. Where 10 keys fail, everything of
//! theirs waits in order, and runs in order after the fix. It fails if that does not hold, or if the
//! ratio of the medians is below 0.9. Ratios mean something on a machine that does nothing else.

#![allow(unused, reason = "the tests' harness, of which this uses a part")]

#[path = "../src/harness/mod.rs"]
mod harness;
#[path = "../src/world/mod.rs"]
mod world;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use posta::store::{RetryStore, Store};
use posta::{Builder, Consumer, Data, Failure, Message, Posta, Tx};
use serde::{Deserialize, Serialize};

use crate::world::{BrokerKind, TestDatabase, World};

const KEYS: usize = 1_000;
/// Every hundredth key fails.
const FAILING_EVERY: usize = 100;
const FAILING: usize = KEYS / FAILING_EVERY;
const RATIO_MIN: f64 = 0.9;
const CONSUMER: &str = "finish";
const PATIENCE: Duration = Duration::from_secs(600);

/// A message that says which of its key's it is.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "bench.numbered", version = 1, key = key)]
struct Numbered {
    key: String,
    number: i64,
}

/// Whether the handler has its bug, and how often it was called.
#[derive(Clone, Debug, Default)]
struct Bug {
    is_there: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
}

/// What is asked for at the command line.
#[derive(Clone, Debug)]
struct Plan {
    /// Messages of each key.
    messages: i64,
    rounds: usize,
    only: Option<String>,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Messages of the 990 keys a second.
    rate: f64,
    /// Calls of the handler until then, for each message that took effect.
    calls: f64,
}

#[actix_rt::main]
async fn main() -> ExitCode {
    let plan = Plan::from_arguments();
    println!(
        "{KEYS} keys, {FAILING} of them failing, {} messages each, {} rounds",
        plan.messages, plan.rounds
    );
    let mut holds = true;
    if plan.wants("sqlite") {
        holds &= compare::<posta::Sqlite>(&plan, BrokerKind::Database, "SQLite, database").await;
    }
    if plan.wants("postgres") {
        holds &=
            compare::<posta::Postgres>(&plan, BrokerKind::RabbitMq, "PostgreSQL, RabbitMQ").await;
    }
    match holds {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

impl Plan {
    fn from_arguments() -> Self {
        let mut plan = Self {
            messages: 100,
            rounds: 3,
            only: None,
        };
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().expect("a value");
            match argument.as_str() {
                "--messages" => plan.messages = value().parse().expect("a number"),
                "--rounds" => plan.rounds = value().parse().expect("a number"),
                "--only" => plan.only = Some(value()),
                // Cargo's own.
                "--bench" => {}
                other => panic!("what is {other:?}?"),
            }
        }
        plan
    }

    fn wants(&self, database: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == database)
    }
}

/// Runs in turn; prints them, and whether the ratio is what it must be.
async fn compare<D: TestDatabase>(plan: &Plan, broker: BrokerKind, name: &str) -> bool {
    println!("\n{name}; load {}", load());
    println!(
        "  round   without failures         {FAILING} keys fail          ratio   calls a message"
    );
    let (mut without, mut with) = (Vec::new(), Vec::new());
    for round in 1..=plan.rounds {
        let sound = run::<D>(plan.messages, broker, false).await;
        let failing = run::<D>(plan.messages, broker, true).await;
        println!(
            "  {round:<5}   {:>14.0} /s   {:>14.0} /s   {:>12.3}   {:.2}, {:.2}",
            sound.rate,
            failing.rate,
            failing.rate / sound.rate,
            sound.calls,
            failing.calls
        );
        without.push(sound.rate);
        with.push(failing.rate);
    }
    let (without, with) = (median(&mut without), median(&mut with));
    let ratio = with / without;
    println!("  median  {without:>14.0} /s   {with:>14.0} /s   {ratio:>12.3}");
    println!("  nothing lost, doubled or out of order; load {}", load());
    if ratio < RATIO_MIN {
        println!("  BELOW {RATIO_MIN}");
    }
    ratio >= RATIO_MIN
}

/// Fills the queues, handles everything that can be, and checks what must hold.
async fn run<D: TestDatabase>(messages: i64, broker: BrokerKind, failing: bool) -> Run {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    make_table::<D>(&store).await;
    fill(&world, messages).await;
    let bug = Bug::default();
    bug.is_there.store(failing, Ordering::SeqCst);
    let posta = service(&world, &bug).await;
    let others = (KEYS - FAILING) as i64 * messages;
    let all = KEYS as i64 * messages;
    until_finished::<D>(&store, if failing { others } else { all }).await;
    let calls = bug.calls.load(Ordering::SeqCst) as f64 / others as f64;
    let took = ask::<D>(&store, &took::<D>()).await;
    if failing {
        waits_in_order::<D>(&store, messages).await;
        bug.is_there.store(false, Ordering::SeqCst);
        until_finished::<D>(&store, all).await;
    }
    check::<D>(&store, all).await;
    posta.stop().await.expect("it drains");
    Run {
        rate: others as f64 / (took as f64 / 1e6),
        calls,
    }
}

fn service_of<D: TestDatabase>(world: &World<D>) -> Builder<D> {
    Posta::builder(&world.database_url, world.broker()).tables(world.tables.clone())
}

async fn service<D: TestDatabase>(world: &World<D>, bug: &Bug) -> Posta<D> {
    // By the default policy: the heads are tried again and again during the run.
    let consumer = Consumer::named(CONSUMER)
        .data(bug.clone())
        .handle_with::<Numbered, _>(finish::<D>);
    let posta = service_of(world).consumer(consumer).start().await;
    posta.expect("it starts")
}

async fn finish<D: TestDatabase>(
    message: Numbered,
    tx: &mut Tx<'_, D>,
    bug: Data<Bug>,
) -> Result<(), Failure> {
    bug.calls.fetch_add(1, Ordering::Relaxed);
    let Numbered { key, number } = message;
    let sql = format!("INSERT INTO finished (key, number) VALUES ('{key}', {number})");
    // The effect comes first: a failure after it must undo it.
    D::run(tx, &sql).await?;
    match bug.is_there.load(Ordering::Relaxed) && is_failing(&key) {
        true => Err(Failure::new(format!("no {number} of {key}"))),
        false => Ok(()),
    }
}

fn is_failing(key: &str) -> bool {
    let number = key.trim_start_matches('k').parse::<usize>();
    number.is_ok_and(|number| number.is_multiple_of(FAILING_EVERY))
}

/// Every key's messages into its consumer's queues: declared, enqueued, dispatched, none handled.
async fn fill<D: TestDatabase>(world: &World<D>, messages: i64) {
    let declaring = service(world, &Bug::default()).await;
    declaring.declared().await;
    declaring.stop().await.expect("it drains");
    let dispatching = service_of(world).start().await.expect("it starts");
    for number in 0..messages {
        let round = dispatching.transaction(async |tx| {
            for key in 0..KEYS {
                let key = format!("k{key}");
                tx.enqueue(&Numbered { key, number })?;
            }
            Ok::<_, anyhow::Error>(())
        });
        round.await.expect("messages are enqueued");
    }
    let (store, end) = (world.store(), Instant::now() + PATIENCE);
    while ask::<D>(&store, "SELECT COUNT(*) AS count FROM {posta}outbox").await > 0 {
        assert!(Instant::now() < end, "in vain waited for dispatch");
        actix_rt::time::sleep(Duration::from_millis(50)).await;
    }
    dispatching.stop().await.expect("it drains");
}

async fn make_table<D: TestDatabase>(store: &D::Store) {
    let (position, at) = match D::KIND {
        "sqlite" => (
            "INTEGER PRIMARY KEY AUTOINCREMENT",
            "INTEGER NOT NULL DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER))",
        ),
        _ => (
            "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
            "timestamptz NOT NULL DEFAULT clock_timestamp()",
        ),
    };
    let sql = format!(
        "CREATE TABLE finished (position {position}, at {at}, key TEXT NOT NULL, number BIGINT NOT NULL)"
    );
    let mut session = store.begin().await.expect("a transaction");
    D::run(&mut session, &sql).await.expect("a table");
    session.commit().await.expect("a commit");
}

/// Microseconds from the first effect to the last of the 990 keys.
fn took<D: TestDatabase>() -> String {
    let span = match D::KIND {
        "sqlite" => "(MAX(at) FILTER (WHERE NOT fails) - MIN(at)) * 1000",
        _ => "EXTRACT(EPOCH FROM MAX(at) FILTER (WHERE NOT fails) - MIN(at)) * 1000000",
    };
    format!(
        "SELECT CAST({span} AS BIGINT) AS count
         FROM (SELECT at, key LIKE '%00' OR key = 'k0' AS fails FROM finished) AS f"
    )
}

async fn until_finished<D: TestDatabase>(store: &D::Store, count: i64) {
    let end = Instant::now() + PATIENCE;
    loop {
        let finished = ask::<D>(store, "SELECT COUNT(*) AS count FROM finished").await;
        if finished >= count {
            return;
        }
        assert!(Instant::now() < end, "{finished} of {count} have finished");
        actix_rt::time::sleep(Duration::from_millis(200)).await;
    }
}

/// All messages of the failing keys wait, in order, and nothing else does.
async fn waits_in_order<D: TestDatabase>(store: &D::Store, messages: i64) {
    let expected = (FAILING as i64 * messages) as u64;
    let end = Instant::now() + PATIENCE;
    loop {
        let mut session = store.begin_read().await.expect("a transaction");
        let held = store.held(&mut session, CONSUMER).await.expect("a count");
        session.rollback().await;
        if held == (expected, FAILING as u64) {
            break;
        }
        assert!(Instant::now() < end, "{held:?} wait instead of {expected}");
        actix_rt::time::sleep(Duration::from_millis(50)).await;
    }
    let mut session = store.begin_read().await.expect("a transaction");
    for key in (0..KEYS).step_by(FAILING_EVERY) {
        let key = posta::OrderingKey::new(format!("k{key}")).expect("a key");
        let limit = messages as usize + 1;
        let rows = store.held_of_key(&mut session, CONSUMER, &key, limit);
        let rows = rows.await.expect("the rows of a key").into_iter();
        let numbers = rows.map(|row| {
            let numbered: Numbered = serde_json::from_slice(&row.envelope.payload).expect("JSON");
            numbered.number
        });
        assert!(numbers.eq(0..messages), "{key:?} waits out of order");
    }
    session.rollback().await;
}

/// Everything took effect, once, in order.
async fn check<D: TestDatabase>(store: &D::Store, all: i64) {
    let ask = async |sql: &str| ask::<D>(store, sql).await;
    assert_eq!(ask("SELECT COUNT(*) AS count FROM finished").await, all);
    let pairs = "SELECT COUNT(*) AS count FROM (SELECT DISTINCT key, number FROM finished) AS f";
    assert_eq!(ask(pairs).await, all, "doubled");
    let misordered = ask("SELECT COUNT(*) AS count FROM (
             SELECT number, ROW_NUMBER() OVER (PARTITION BY key ORDER BY position) - 1 AS place
             FROM finished) AS f WHERE number <> place");
    assert_eq!(misordered.await, 0, "out of order");
    for table in ["outbox", "queue", "retry", "dead_letter"] {
        let sql = format!("SELECT COUNT(*) AS count FROM {{posta}}{table}");
        assert_eq!(ask(&sql).await, 0, "something is left in {table}");
    }
}

async fn ask<D: TestDatabase>(store: &D::Store, sql: &str) -> i64 {
    world::effects::count::<D>(store, sql).await
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// What else the machine does.
fn load() -> String {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ').take(2).collect::<Vec<_>>().join(" ")
}
