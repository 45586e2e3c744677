//! Drives one round: starts the processes, lets things happen to them, heals everything, and has the
//! checker judge, in the middle and at the end. It knows nothing of what the checker looks for.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use super::checker::{Verdict, judge, judge_payloads, judge_quiet, restless};
use super::fault::{Fault, Possible};
use super::ground::{DatabaseKind, Ground};
use super::message::{AUDIT, BILLING, LEDGER, hash};
use super::network::{Network, Server};
use super::plan::Plan;
use super::points::{Point, Tally};
use super::seat::{End, Seat};
use super::service::{KEYS, Orders};
use crate::harness::{postgres, proxy::Traffic, rabbitmq::control};
use crate::world::BrokerKind;

/// A process that is to die at a point and does not come by is killed after so long: the leases of its
/// predecessor run out first.
const AIM_TIME: Duration = Duration::from_secs(14);
/// What is dead is mended and replayed this often.
const REPLAY_INTERVAL: Duration = Duration::from_secs(3);
/// Reached only by who reads a dead queue with something in it: [`AUDIT`]'s.
const DEAD_QUEUE: &str = "dead_queue.committed";
/// So slowly that a run lasts for a while.
const REPLAYS_A_SECOND: u32 = 8;
/// While a process is to die over a dead queue, something lands there this often.
const DEAD_COPY_INTERVAL: Duration = Duration::from_secs(1);
/// When all looks quiet, what is missing may still be under way for so long: a broker counts once a
/// second.
const STRAGGLERS: Duration = Duration::from_secs(6);
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

/// What is to be done when a fault's time is over.
enum Undo {
    Unfreeze(usize),
    Pass(usize, Server),
    /// After bytes were swallowed a connection is of no use.
    CutAndPass(usize, Server),
    FreeDisk,
}

struct Driver<'p> {
    plan: &'p Plan,
    rng: StdRng,
    began: Instant,
    story: String,
    seats: Vec<Seat>,
    undo: Vec<(Instant, Undo)>,
    /// What is being done to a server.
    server: Option<JoinHandle<()>>,
    tally: &'p mut Tally,
    outcome: Outcome,
    network: Network,
    // Last: it goes when nobody uses it any more.
    ground: Ground,
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

    fn seat(&self, number: usize, name: &'static str, consumers: &[&str], produces: bool) -> Seat {
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

    /// Notes who has died, starts who is missing, and undoes what is over.
    fn attend(&mut self) -> Result<(), String> {
        for number in 0..self.seats.len() {
            if let Some(end) = self.seats[number].ended() {
                self.note(number, end)?;
            }
            let seat = &self.seats[number];
            let aimed_in_vain = seat.aim().is_some() && seat.age() > AIM_TIME && !seat.is_stopped();
            if aimed_in_vain {
                self.kill(number)?;
            }
            if !self.seats[number].is_running() {
                let aim = self
                    .rng
                    .random_bool(0.6)
                    .then(|| self.next_aim(number))
                    .flatten();
                self.start(number, aim);
            }
        }
        let now = Instant::now();
        let (due, later) = std::mem::take(&mut self.undo)
            .into_iter()
            .partition(|(at, _)| *at <= now);
        self.undo = later;
        let due: Vec<(Instant, Undo)> = due;
        due.into_iter().for_each(|(_, undo)| self.undo(undo));
        if self.server.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join_server()?;
        }
        Ok(())
    }

    fn note(&mut self, number: usize, end: End) -> Result<(), String> {
        let name = self.seats[number].name;
        match end {
            End::Crashed(point) => {
                self.tell(&format!("{name} has crashed at {point}"));
                self.tally.hit(point);
                self.outcome.tally.hit(point);
                Ok(())
            }
            End::Unasked(how) => Err(format!("G6 {name} has ended by itself: {how}")),
        }
    }

    /// Kills a process at a random time; it may have come to its point a moment before.
    fn kill(&mut self, number: usize) -> Result<(), String> {
        let aim = self.seats[number].aim();
        if let Some(end) = self.seats[number].kill() {
            return self.note(number, end);
        }
        if let Some(point) = aim {
            self.tally.miss(point);
        }
        let name = self.seats[number].name;
        self.tell(&format!("{name} is killed, aim {aim:?}"));
        self.count(Fault::Kill.kind());
        Ok(())
    }

    fn start(&mut self, number: usize, aim: Option<(Point, u64)>) {
        let name = self.seats[number].name;
        let aimed = aim.map(|(point, times)| (point.name, times));
        self.tell(&format!("{name} is started, aim {aimed:?}"));
        // What was silent to the last one need not be to this one, and the other way round.
        self.seats[number].start(aim);
    }

    /// Sees to it that enough processes are to die at a point.
    fn aim(&mut self) {
        let aimed = self
            .seats
            .iter()
            .filter(|seat| seat.aim().is_some())
            .count();
        if aimed >= self.plan.aims_max || !self.rng.random_bool(0.03) {
            return;
        }
        let number = self.rng.random_range(0..self.seats.len());
        let seat = &self.seats[number];
        // One that has had time to work: what it leaves behind is more.
        if seat.aim().is_some() || seat.age() < Duration::from_secs(4) || seat.is_stopped() {
            return;
        }
        // An end that it has come to by itself is noted at the next look.
        if self.kill(number).is_ok()
            && let Some(aim) = self.next_aim(number)
        {
            self.start(number, Some(aim));
        }
    }

    fn next_aim(&mut self, number: usize) -> Option<(Point, u64)> {
        let aimed_at: Vec<&str> = self.seats.iter().filter_map(Seat::aim).collect();
        if aimed_at.len() >= self.plan.aims_max {
            return None;
        }
        let mut not_here = aimed_at;
        let orders = &self.seats[number].orders;
        if !orders.produces {
            not_here.extend(["enqueue.inserted", "enqueue.committed"]);
        }
        if !orders.consumers.iter().any(|name| name == AUDIT) {
            not_here.push(DEAD_QUEUE);
        }
        let (broker, points) = (self.plan.broker, self.plan.points);
        let point = self.tally.next(broker, points, &not_here, &mut self.rng)?;
        Some((point, self.rng.random_range(1..=point.passes_max)))
    }

    fn possible(&self) -> Possible {
        let disk = self.ground.disk.as_ref();
        Possible {
            postgres: self.plan.database == DatabaseKind::Postgres,
            rabbitmq: self.plan.broker == BrokerKind::RabbitMq,
            disk: disk.is_some_and(super::ground::Disk::can_be_filled),
            servers: self.plan.servers,
        }
    }

    /// Has a fault happen, unless something of its kind is happening.
    fn strike(&mut self, fault: Fault) {
        let number = self.rng.random_range(0..self.seats.len());
        let now = Instant::now();
        match fault {
            Fault::Kill => {
                if self.seats[number].is_stopped() {
                    return;
                }
                // One that has ended by itself in a way of its own is noted there.
                if let Err(how) = self.kill(number) {
                    self.outcome.verdict.broken.push(how);
                }
                return;
            }
            Fault::Freeze(lasts) => {
                if self.seats[number].is_stopped() {
                    return;
                }
                self.seats[number].freeze(true);
                self.undo.push((now + lasts, Undo::Unfreeze(number)));
            }
            Fault::Network(server, traffic, lasts) => {
                let busy = self.undo.iter().any(|(_, undo)| {
                    matches!(undo, Undo::Pass(at, of) | Undo::CutAndPass(at, of) if (*at, *of) == (number, server))
                });
                if busy {
                    return;
                }
                self.set(number, server, traffic);
                let undo = match traffic {
                    Traffic::Stall => Undo::CutAndPass(number, server),
                    _ => Undo::Pass(number, server),
                };
                self.undo.push((now + lasts, undo));
            }
            Fault::Reset(server) => self.undo(Undo::CutAndPass(number, server)),
            Fault::DiskFull(lasts) => {
                if self
                    .undo
                    .iter()
                    .any(|(_, undo)| matches!(undo, Undo::FreeDisk))
                {
                    return;
                }
                if let Some(disk) = &self.ground.disk {
                    disk.fill();
                }
                self.undo.push((now + lasts, Undo::FreeDisk));
            }
            Fault::DeadCopy => {
                if !self.copy_into_dead_queue().unwrap_or(false) {
                    return;
                }
            }
            Fault::PostgresKilled(lasts) => {
                if !self.disturb(move || {
                    control("postgres-kill", None);
                    std::thread::sleep(lasts);
                    control("postgres-start", None);
                }) {
                    return;
                }
            }
            Fault::RabbitMqKilled(lasts) => {
                if !self.disturb(move || {
                    control("rabbitmq-kill", None);
                    std::thread::sleep(lasts);
                    control("rabbitmq-start", None);
                }) {
                    return;
                }
            }
            Fault::RabbitMqRestarted => {
                if !self.disturb(|| drop(control("rabbitmq-restart", None))) {
                    return;
                }
            }
            Fault::Alarm(lasts) => {
                if !self.disturb(move || {
                    control("rabbitmq-block", None);
                    std::thread::sleep(lasts);
                    control("rabbitmq-unblock", None);
                }) {
                    return;
                }
            }
        }
        let name = self.seats[number].name;
        self.tell(&format!("{fault:?} (seat {name})"));
        self.count(fault.kind());
    }

    fn disturb(&mut self, work: impl FnOnce() + Send + 'static) -> bool {
        if self.server.is_some() {
            return false;
        }
        self.server = Some(std::thread::spawn(work));
        true
    }

    fn join_server(&mut self) -> Result<(), String> {
        let Some(server) = self.server.take() else {
            return Ok(());
        };
        self.tell("the server is as it was");
        server
            .join()
            .map_err(|_| "a control script has failed".to_owned())
    }

    fn database_is_up(&self) -> bool {
        self.server.is_none() || self.plan.database == DatabaseKind::Sqlite
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Unfreeze(number) => self.seats[number].freeze(false),
            Undo::Pass(number, server) => self.set(number, server, Traffic::Pass),
            Undo::CutAndPass(number, server) => {
                self.set(number, server, Traffic::Cut);
                // Long enough for every pump to see it.
                std::thread::sleep(Duration::from_millis(50));
                self.set(number, server, Traffic::Pass);
            }
            Undo::FreeDisk => {
                if let Some(disk) = &self.ground.disk {
                    disk.free();
                }
            }
        }
    }

    fn set(&self, seat: usize, server: Server, traffic: Traffic) {
        for (at, before, proxy) in &self.network.proxies {
            if (*at, *before) == (seat, server) {
                proxy.set(traffic);
            }
        }
    }

    /// Has a copy of a scheduled note arrive at a dead queue, as one that the broker gave up on.
    fn copy_into_dead_queue(&self) -> Result<bool, String> {
        let Some(vhost) = &self.ground.vhost else {
            return Ok(false);
        };
        if !self.database_is_up() {
            return Ok(false);
        }
        let hex = match self.plan.database {
            DatabaseKind::Sqlite => "lower(hex(message_id)) || '|' || lower(hex(payload))",
            DatabaseKind::Postgres => "CAST(message_id AS text) || '|' || encode(payload, 'hex')",
        };
        let note = format!("SELECT {hex} AS value FROM {{posta}}scheduled LIMIT 1");
        let lines = self.ground.tables.lines(&note)?;
        let Some((id, payload)) = lines.first().and_then(|line| line.split_once('|')) else {
            return Ok(false);
        };
        let id: uuid::Uuid = id.parse().map_err(|_| "no id".to_owned())?;
        let payload: Vec<u8> = (0..payload.len() / 2)
            .filter_map(|n| u8::from_str_radix(&payload[2 * n..2 * n + 2], 16).ok())
            .collect();
        let properties = serde_json::json!({
            "message_id": id.to_string(),
            "type": "faults.note",
            "content_type": "application/json",
            "delivery_mode": 2,
            "headers": {"posta-version": 1},
        });
        let dead = format!("{AUDIT}.dead");
        let published = vhost.publish_into(&dead, &properties, &payload);
        published.map(|()| true).map_err(|error| error.to_string())
    }

    /// Sends as much as is handled: no more while too much is under way.
    fn govern(&mut self) {
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
    fn set_rate(&self, messages: u32) -> Result<(), String> {
        let producers = self.seats.iter().filter(|seat| seat.orders.produces);
        // A transaction sends 15 on average, and what they are answered with is twice as many.
        let transactions = u64::from(messages) * 3600 / 45 / producers.count().max(1) as u64;
        let set = format!("UPDATE control SET value = {transactions} WHERE name = 'rate'");
        self.ground.tables.run(&set)
    }

    fn set_rate_patiently(&mut self, messages: u32) -> Result<(), String> {
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
    fn look(&mut self) {
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

    /// A consumer's queues are deleted with messages in them; an operator sends again what was
    /// dispatched. So that the lost messages are not overtaken by later ones of their keys, as nobody
    /// promises, everything stands still meanwhile: all that was sent is in the queues when they go.
    fn lose_queues(&mut self) -> Result<(), String> {
        self.tell("all processes end, for queues to be lost");
        self.set_rate_patiently(0)?;
        self.heal_all_but_processes()?;
        for number in 0..self.seats.len() {
            self.kill(number)?;
        }
        let all = self.seats.len() - 1;
        let mut dispatching = self.seat(all, "dispatching", &[], false);
        dispatching.start(None);
        let tables = self.ground.tables.clone();
        let outbox = "SELECT COUNT(*) FROM {posta}outbox";
        self.until("the outbox is empty", |_| tables.number(outbox) == Ok(0))?;
        drop(dispatching);
        let consumer = [LEDGER, BILLING, AUDIT][self.rng.random_range(0..3)];
        let lost = self.ground.delete_queues(consumer)?;
        self.count("queues deleted");
        self.tell(&format!("{consumer} loses its queues with {lost} messages"));
        let mut declaring = self.seat(all, "declaring", &[consumer], false);
        declaring.start(None);
        self.until("the queues are there again", |_| declaring.is_ready())?;
        let again = self.ground.redispatch()?;
        self.tell(&format!("{again} rows go out again"));
        drop(declaring);
        for number in 0..self.seats.len() {
            self.start(number, None);
        }
        self.until("all are ready", |driver| {
            driver.seats.iter().all(Seat::is_ready)
        })?;
        self.set_rate(self.plan.rate)
    }

    fn heal_all_but_processes(&mut self) -> Result<(), String> {
        for (_, undo) in std::mem::take(&mut self.undo) {
            self.undo(undo);
        }
        self.join_server()
    }

    /// Nothing disturbs any more, and nobody is to die.
    fn heal(&mut self) -> Result<(), String> {
        self.heal_all_but_processes()?;
        for number in 0..self.seats.len() {
            if self.seats[number].aim().is_some() {
                self.kill(number)?;
            }
            if let Some(end) = self.seats[number].ended() {
                self.note(number, end)?;
            }
            if !self.seats[number].is_running() {
                self.start(number, None);
            }
        }
        Ok(())
    }

    /// Waits until everything that can run has run, and judges.
    fn settle(&mut self, healed: bool) -> Result<(), String> {
        let began = Instant::now();
        let mut quiet_since = None;
        loop {
            self.nobody_ended()?;
            let found = self.ground.tables.snapshot()?;
            let queues = self.ground.queues();
            let contract = self.plan.contract();
            let moving = match &queues {
                Ok(queues) => restless(&found, queues),
                Err(error) => vec![error.clone()],
            };
            let queues = queues.unwrap_or_default();
            let verdict = judge_quiet(&contract, &found, &queues, healed);
            let quiet = moving.is_empty();
            quiet_since = quiet.then(|| quiet_since.unwrap_or_else(Instant::now));
            let for_sure = quiet_since.is_some_and(|since| since.elapsed() > STRAGGLERS);
            if quiet && (verdict.lost == 0 || for_sure) {
                self.tell(&format!("quiet after {:?}", began.elapsed()));
                self.outcome.looks += 1;
                self.outcome.verdict.add(verdict);
                return Ok(());
            }
            let patience = self.plan.patience;
            if began.elapsed() > patience {
                self.outcome.verdict.add(verdict);
                let moving: Vec<String> = moving.into_iter().take(20).collect();
                return Err(format!("G2, G6 not quiet after {patience:?}: {moving:#?}"));
            }
            std::thread::sleep(Duration::from_millis(300));
        }
    }

    /// Everything that is dead is mended and replayed, until nothing is.
    fn replay_all(&mut self) -> Result<(), String> {
        let tables = self.ground.tables.clone();
        // What waits may die in its turn.
        let open = "SELECT (SELECT COUNT(*) FROM {posta}dead_letter \
                        WHERE state IN ('dead', 'replaying')) \
                    + (SELECT COUNT(*) FROM {posta}replay_run WHERE ended_at IS NULL) \
                    + (SELECT COUNT(*) FROM {posta}retry)";
        let mut next = Instant::now();
        self.until("nothing is dead", |driver| {
            if Instant::now() >= next {
                driver.ground.replay(None);
                next = Instant::now() + Duration::from_secs(1);
            }
            tables.number(open) == Ok(0)
        })
    }

    /// Drains all processes: each ends by itself, and well.
    fn drain(&mut self) -> Result<(), String> {
        self.seats.iter_mut().for_each(Seat::drain);
        let mut problems = Vec::new();
        self.until("all have drained", |driver| {
            for seat in &mut driver.seats {
                if let Some(Err(how)) = seat.drained() {
                    problems.push(format!("G6 {} has not drained: {how}", seat.name));
                }
            }
            driver.seats.iter().all(|seat| !seat.is_running())
        })?;
        self.outcome.verdict.broken.extend(problems);
        Ok(())
    }

    fn nobody_ended(&mut self) -> Result<(), String> {
        for number in 0..self.seats.len() {
            if let Some(end) = self.seats[number].ended() {
                self.note(number, end)?;
            }
        }
        Ok(())
    }

    fn until(
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

    fn count(&mut self, kind: &'static str) {
        *self.outcome.faults.entry(kind).or_default() += 1;
    }

    fn tell(&mut self, what: &str) {
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

    fn keep(&self, name: &str, text: String) {
        let path = self.plan.evidence.join(name);
        if let Err(error) = fs::write(&path, text) {
            eprintln!("not kept, {}: {error}", path.display());
        }
    }
}
