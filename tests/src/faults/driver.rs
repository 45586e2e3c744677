//! Drives one round: starts the processes, lets things happen to them, heals everything, and has the
//! checker judge, in the middle and at the end. It knows nothing of what the checker looks for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::attendance::DEAD_QUEUE;
use super::checker::{Verdict, judge, judge_payloads};
use super::disturbance::Undo;
use super::fault::Fault;
use super::ground::{DatabaseKind, Ground};
use super::message::hash;
use super::network::{Network, Server};
use super::plan::Plan;
use super::points::Tally;
use super::seat::Seat;
use super::service::{KEYS, Orders};
use crate::harness::postgres;
use crate::world::BrokerKind;

/// What is dead is mended and replayed this often.
const REPLAY_INTERVAL: Duration = Duration::from_secs(3);
/// So slowly that a run lasts for a while.
const REPLAYS_A_SECOND: u32 = 8;
/// While a process is to die over a dead queue, something lands there this often.
const DEAD_COPY_INTERVAL: Duration = Duration::from_secs(1);
/// The numbers of partitions change for the first time after so long,
const FIRST_DIVISION: Duration = Duration::from_secs(3);
/// and again after so long: most changes are through then, the others go on before the next.
const DIVISION_INTERVAL: Duration = Duration::from_secs(12);
/// Messages that may be on their way: beyond that nothing more is sent.
const BACKLOG_MAX: i64 = 2_500;

/// What a round came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) messages: u64,
    pub(super) effects: u64,
    pub(super) letters: u64,
    /// Besides crashes at points.
    pub(super) faults: BTreeMap<&'static str, u64>,
    pub(super) tally: Tally,
    pub(super) looks: u64,
    pub(super) verdict: Verdict,
}

pub(super) struct Driver<'p> {
    pub(super) plan: &'p Plan,
    pub(super) rng: StdRng,
    pub(super) began: Instant,
    pub(super) story: String,
    pub(super) seats: Vec<Seat>,
    pub(super) undo: Vec<(Instant, Undo)>,
    /// What is being done to a server.
    pub(super) server: Option<JoinHandle<()>>,
    pub(super) tally: &'p mut Tally,
    pub(super) outcome: Outcome,
    pub(super) network: Network,
    // Last: it goes when nobody uses it any more.
    pub(super) ground: Ground,
}

/// Runs a round. `tally` goes on from round to round: what was hit least is aimed at next.
pub(super) fn run(plan: &Plan, tally: &mut Tally) -> Outcome {
    fs::create_dir_all(&plan.evidence).expect("the evidence's folder");
    let mut driver = Driver::begin(plan, tally);
    let done = driver.round();
    if let Err(broken) = done {
        driver.outcome.verdict.broken.push(broken);
    }
    driver.end()
}

impl<'p> Driver<'p> {
    fn begin(plan: &'p Plan, tally: &'p mut Tally) -> Self {
        let ground = Ground::fresh(plan.database, plan.broker);
        let mut servers = Vec::new();
        if plan.database == DatabaseKind::Postgres {
            servers.push((Server::Postgres, postgres::address()));
        }
        if let Some(vhost) = &ground.vhost {
            servers.push((Server::RabbitMq, vhost.address()));
        }
        let network = Network::before(&servers, plan.seats().len());
        let rng = StdRng::seed_from_u64(plan.seed);
        let mut driver = Self {
            plan,
            rng,
            began: Instant::now(),
            story: String::new(),
            seats: Vec::new(),
            undo: Vec::new(),
            server: None,
            tally,
            outcome: Outcome::default(),
            network,
            ground,
        };
        for (number, (name, consumers, produces)) in plan.seats().iter().enumerate() {
            let seat = driver.seat(number, name, consumers, *produces);
            driver.seats.push(seat);
        }
        driver
    }

    pub(super) fn seat(
        &self,
        number: usize,
        name: &'static str,
        consumers: &[&str],
        produces: bool,
    ) -> Seat {
        let (ground, network) = (&self.ground, &self.network);
        let orders = Orders {
            database: match ground.database {
                DatabaseKind::Sqlite => "sqlite".to_owned(),
                DatabaseKind::Postgres => "postgres".to_owned(),
            },
            database_url: match ground.database {
                DatabaseKind::Sqlite => ground.database_url.clone(),
                DatabaseKind::Postgres => {
                    network.url(number, Server::Postgres, &ground.database_url)
                }
            },
            tables: ground.tables_name.clone(),
            broker_url: match ground.broker {
                BrokerKind::Database => ground.broker_url.clone(),
                BrokerKind::RabbitMq => network.url(number, Server::RabbitMq, &ground.broker_url),
            },
            consumers: consumers.iter().map(|&name| name.to_owned()).collect(),
            division: 0,
            produces,
            seed: self.plan.seed + number as u64,
        };
        Seat::new(name, orders, self.plan.mistake, &self.plan.evidence)
    }

    fn round(&mut self) -> Result<(), String> {
        let keys = (0..KEYS).map(|key| format!("('k{key}', 0)"));
        let keys = keys.collect::<Vec<_>>().join(", ");
        let counters = format!("INSERT INTO counter VALUES {keys}");
        self.ground.tables.run(&counters)?;
        for seat in &mut self.seats {
            seat.start(None);
        }
        self.until("all are ready", |driver| {
            driver.seats.iter().all(Seat::is_ready)
        })?;
        self.set_rate(self.plan.rate)?;
        let end = Instant::now() + self.plan.chaos;
        match self.plan.loses_queues {
            true => {
                self.happen(Instant::now() + self.plan.chaos / 2)?;
                self.lose_queues()?;
                self.happen(end.max(Instant::now() + Duration::from_secs(2)))?;
            }
            false => self.happen(end)?,
        }
        self.tell("the end of all faults");
        self.set_rate_patiently(0)?;
        self.heal()?;
        self.settle(false)?;
        if !self.outcome.verdict.is_clean() {
            return Ok(());
        }
        self.tell("replay everything");
        self.replay_all()?;
        self.settle(true)?;
        let found = self.ground.tables.snapshot()?;
        let payloads = self.ground.tables.payloads()?;
        self.outcome
            .verdict
            .add(judge_payloads(&found, &payloads, hash));
        self.outcome.messages = found.sent.len() as u64;
        self.outcome.effects = found.took.len() as u64;
        self.outcome.letters = found.letters.len() as u64;
        self.drain()
    }

    /// Lets things happen until then, or until something is wrong.
    fn happen(&mut self, end: Instant) -> Result<(), String> {
        let mut next_fault = Instant::now() + Duration::from_millis(500);
        let mut next_look = Instant::now() + self.plan.look_interval;
        let mut next_replay = Instant::now() + REPLAY_INTERVAL;
        let mut next_rate = Instant::now() + Duration::from_secs(1);
        let mut next_copy = Instant::now();
        let mut next_division = Instant::now() + FIRST_DIVISION;
        while Instant::now() < end {
            self.attend()?;
            self.aim();
            let now = Instant::now();
            if let Some(pause) = self.plan.pause
                && now >= next_fault
            {
                let fault = Fault::draw(self.possible(), &mut self.rng);
                self.strike(fault);
                next_fault = now + pause.mul_f64(self.rng.random_range(0.2..1.8));
            }
            if self.plan.redivides && now >= next_division {
                self.redivide()?;
                next_division = now + DIVISION_INTERVAL;
            }
            if self.database_is_up() {
                if now >= next_rate {
                    self.govern();
                    next_rate = Instant::now() + Duration::from_secs(1);
                }
                if now >= next_replay {
                    if self.ground.replay(Some(REPLAYS_A_SECOND)) {
                        self.tell("a replay run");
                    }
                    next_replay = Instant::now() + REPLAY_INTERVAL;
                }
                if now >= next_copy && self.seats.iter().any(|it| it.aim() == Some(DEAD_QUEUE)) {
                    self.strike(Fault::DeadCopy);
                    next_copy = Instant::now() + DEAD_COPY_INTERVAL;
                }
                if now >= next_look {
                    self.look();
                    next_look = Instant::now() + self.plan.look_interval;
                }
            }
            if !self.outcome.verdict.is_clean() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// All processes die and come back with other numbers of partitions: of all consumers at once, so
    /// that all come by the points of a change.
    fn redivide(&mut self) -> Result<(), String> {
        for number in 0..self.seats.len() {
            self.kill(number)?;
            self.seats[number].orders.division += 1;
        }
        self.count("partitions changed");
        self.tell("other numbers of partitions are wished");
        Ok(())
    }

    /// Sends as much as is handled: no more while too much is under way.
    pub(super) fn govern(&mut self) {
        let backlog = self
            .ground
            .tables
            .number("SELECT (SELECT COUNT(*) FROM sent) * 5 / 3 - (SELECT COUNT(*) FROM took)");
        let Ok(backlog) = backlog else {
            return;
        };
        let rate = if backlog > BACKLOG_MAX {
            0
        } else {
            self.plan.rate
        };
        // Whatever comes of it: it is set again in a second.
        let _ = self.set_rate(rate);
    }

    /// So many messages a second shall be sent, by all together.
    pub(super) fn set_rate(&self, messages: u32) -> Result<(), String> {
        let producers = self.seats.iter().filter(|seat| seat.orders.produces);
        // A transaction sends 15 on average, and what they are answered with is twice as many.
        let transactions = u64::from(messages) * 3600 / 45 / producers.count().max(1) as u64;
        let set = format!("UPDATE control SET value = {transactions} WHERE name = 'rate'");
        self.ground.tables.run(&set)
    }

    pub(super) fn set_rate_patiently(&mut self, messages: u32) -> Result<(), String> {
        let began = Instant::now();
        loop {
            match self.set_rate(messages) {
                Ok(()) => return Ok(()),
                Err(error) if began.elapsed() > self.plan.patience => return Err(error),
                Err(_) => self.attend()?,
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Judges what holds at any moment, if the database answers.
    pub(super) fn look(&mut self) {
        let Ok(found) = self.ground.tables.snapshot() else {
            return;
        };
        let queues = self.ground.queues().unwrap_or_default();
        let verdict = judge(&self.plan.contract(), &found, &queues);
        if !verdict.is_clean() {
            self.keep("tables-at-once", format!("{found:#?}"));
        }
        self.outcome.looks += 1;
        self.outcome.messages = found.sent.len() as u64;
        self.outcome.effects = found.took.len() as u64;
        self.outcome.letters = found.letters.len() as u64;
        self.tell(&format!(
            "a look: {} sent, {} effects, {} in the outbox, {} wait for a retry",
            found.sent.len(),
            found.took.len(),
            found.outbox.len(),
            found.retry.len()
        ));
        self.outcome.verdict.add(verdict);
    }

    pub(super) fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&mut Self) -> bool,
    ) -> Result<(), String> {
        let began = Instant::now();
        while !holds(self) {
            let patience = self.plan.patience;
            if began.elapsed() > patience {
                return Err(format!("G6 in vain waited {patience:?} until {what}"));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    pub(super) fn count(&mut self, kind: &'static str) {
        *self.outcome.faults.entry(kind).or_default() += 1;
    }

    pub(super) fn tell(&mut self, what: &str) {
        let at = self.began.elapsed().as_secs_f64();
        // Nothing refuses text here.
        let _ = writeln!(self.story, "{at:8.3} {what}");
    }

    /// Keeps what there is to see if something is wrong, and nothing otherwise.
    fn end(mut self) -> Outcome {
        let folder = &self.plan.evidence;
        if self.outcome.verdict.is_clean() && !self.plan.keeps_all {
            let _ = fs::remove_dir_all(folder);
            return self.outcome;
        }
        let story = std::mem::take(&mut self.story);
        let broken = self.outcome.verdict.broken.join("\n");
        self.keep("story", story);
        self.keep("broken", broken);
        self.keep("tables", format!("{:#?}", self.ground.tables.snapshot()));
        self.keep("details", self.ground.tables.details().join("\n"));
        self.keep("queues", format!("{:#?}", self.ground.queues()));
        self.keep("plan", format!("{:#?}", self.plan));
        self.outcome
    }

    pub(super) fn keep(&self, name: &str, text: String) {
        let path = self.plan.evidence.join(name);
        if let Err(error) = fs::write(&path, text) {
            eprintln!("not kept, {}: {error}", path.display());
        }
    }
}
