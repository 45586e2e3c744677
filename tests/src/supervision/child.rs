//! A service as a child process that a platform would run: it waits for signals, says how it is, and
//! exits as its runtime ended. The test binary itself, called again.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use posta::supervision::{Budget, PastBudget, STABLE_AFTER_DEFAULT, at_crash_points};
use posta::{Broker, Posta, Postgres, Sqlite, Tables};

use crate::world::gate::Gate;
use crate::world::service::{echoes_consumer, gated_consumer, quick};
use crate::world::{PATIENCE, TestDatabase, World, log};

const ROLE: &str = "POSTA_TEST_SUPERVISED";
const BUDGET_WINDOW: Duration = Duration::from_secs(600);
const RESTART_BACKOFF: Duration = Duration::from_secs(1);

/// What a child is told at its start.
#[derive(Clone, Debug, Default)]
pub(super) struct Orders {
    /// At which point whoever comes there panics, until it is told to [`Service::heal`].
    pub(super) panic_at: Option<&'static str>,
    pub(super) past_budget: PastBudget,
    /// 10 s by default.
    pub(super) grace: Option<Duration>,
    /// Posta's default by default.
    pub(super) stable_after: Option<Duration>,
    /// More of its environment.
    pub(super) env: Vec<(&'static str, String)>,
}

/// A child process that runs the service.
pub(super) struct Service {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Service {
    /// Starts a child on the world and waits until it is ready.
    pub(super) fn start<D: TestDatabase>(world: &World<D>, orders: Orders) -> Self {
        let past_budget = match orders.past_budget {
            PastBudget::Exit => "exit",
            _ => "stay",
        };
        let grace = orders.grace.unwrap_or(Duration::from_secs(10));
        let stable_after = orders.stable_after.unwrap_or(STABLE_AFTER_DEFAULT);
        let mut child = Command::new(std::env::current_exe().expect("the test binary"))
            .args([
                "--exact",
                "supervision::child::run_when_asked",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, D::KIND)
            .env("POSTA_TEST_SUPERVISED_DATABASE", &world.database_url)
            .env("POSTA_TEST_SUPERVISED_TABLES", world.tables.name())
            .env("POSTA_TEST_SUPERVISED_BROKER", &world.broker_url)
            .env("POSTA_TEST_SUPERVISED_PAST_BUDGET", past_budget)
            .env(
                "POSTA_TEST_SUPERVISED_GRACE_MS",
                grace.as_millis().to_string(),
            )
            .env(
                "POSTA_TEST_SUPERVISED_STABLE_AFTER_MS",
                stable_after.as_millis().to_string(),
            )
            .env(
                "POSTA_TEST_SUPERVISED_PANIC_AT",
                orders.panic_at.unwrap_or_default(),
            )
            .envs(orders.env)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child process");
        let stdin = child.stdin.take().expect("its standard input");
        let stdout = BufReader::new(child.stdout.take().expect("its standard output"));
        let (say, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // Who does not listen any more has seen enough.
                let _ = say.send(line);
            }
        });
        let service = Self {
            child,
            stdin,
            lines,
        };
        service.until_says("health: live, ready");
        service
    }

    /// Waits until it says something with these words; the line.
    pub(super) fn until_says(&self, words: &str) -> String {
        self.until_line(words, |line| line.contains(words))
    }

    /// Waits until it says this and nothing else.
    pub(super) fn until_says_just(&self, said: &str) {
        self.until_line(said, |line| line == said);
    }

    fn until_line(&self, what: &str, is_it: impl Fn(&str) -> bool) -> String {
        let started = Instant::now();
        let mut said = Vec::new();
        loop {
            let left = PATIENCE.saturating_sub(started.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) if is_it(&line) => return line,
                Ok(line) => said.push(line),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    panic!("never said {what:?}, but: {said:#?}")
                }
            }
        }
    }

    /// Whether it has said something with these words since it was last listened to.
    pub(super) fn has_said(&self, words: &str) -> bool {
        self.lines.try_iter().any(|line| line.contains(words))
    }

    /// Sends it a signal, `TERM` or `INT`.
    pub(super) fn signal(&self, signal: &str) {
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -{signal} {}", self.child.id())])
            .status()
            .expect("a shell");
        assert!(sent.success());
    }

    /// Has nobody panic any more.
    pub(super) fn heal(&mut self) {
        writeln!(self.stdin, "heal").expect("a child that listens");
    }

    pub(super) fn is_alive(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    /// Waits for its end: its exit code, how its runtime ended, and how long that took from now.
    pub(super) fn ended(mut self) -> (Option<i32>, String, Duration) {
        let started = Instant::now();
        let said = self.until_says("ended: ");
        while self.is_alive() {
            assert!(started.elapsed() < PATIENCE, "it does not exit");
            std::thread::sleep(Duration::from_millis(5));
        }
        let code = self.child.wait().expect("its end").code();
        (code, said, started.elapsed())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.is_alive() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The child's side. As a test of its own it does nothing: it is the entry of child processes.
#[test]
fn run_when_asked() {
    match std::env::var(ROLE).as_deref() {
        Ok("sqlite") => run::<Sqlite>(),
        Ok("postgres") => run::<Postgres>(),
        Ok(other) => panic!("no such child: {other:?}"),
        Err(_) => {}
    }
}

static HEALED: AtomicBool = AtomicBool::new(false);

fn env(name: &str) -> String {
    std::env::var(format!("POSTA_TEST_SUPERVISED_{name}")).expect("a variable of the child's")
}

fn panic_where_told(point: &'static str) {
    if env("PANIC_AT") == point && !HEALED.load(Ordering::SeqCst) {
        panic!("told to panic at {point}");
    }
}

fn run<D: TestDatabase>() {
    log::show_logs();
    at_crash_points(panic_where_told);
    // Ends when the parent does: no child outlives it.
    std::thread::spawn(|| {
        for _line in std::io::stdin().lines().map_while(Result::ok) {
            HEALED.store(true, Ordering::SeqCst);
        }
        std::process::abort();
    });
    let code = actix::System::new().block_on(async {
        let broker = Broker::from_url(&env("BROKER")).expect("a valid broker");
        let tables = Tables::named(env("TABLES")).expect("a valid name");
        let past_budget = match env("PAST_BUDGET").as_str() {
            "exit" => PastBudget::Exit,
            _ => PastBudget::StayUnhealthy,
        };
        let ms = |name| Duration::from_millis(env(name).parse().expect("a number"));
        let gate = Gate::closed();
        let posta = quick(Posta::<D>::builder(&env("DATABASE"), broker).tables(tables))
            .restarts(Budget::new(2, BUDGET_WINDOW))
            .rebuilds(Budget::new(1, BUDGET_WINDOW))
            .past_budget(past_budget)
            .restart_backoff(RESTART_BACKOFF)
            .stable_after(ms("STABLE_AFTER_MS"))
            .grace(ms("GRACE_MS"))
            .consumer(gated_consumer::<D>(&gate))
            .consumer(echoes_consumer::<D>())
            .start()
            .await
            .expect("a running service");
        let of_posta = posta.clone();
        actix_rt::spawn(async move {
            let (mut said, mut arrived) = (String::new(), 0);
            loop {
                let health = of_posta.health().to_string();
                if health != said {
                    println!("health: {health}");
                    said = health;
                }
                if gate.arrived() > arrived {
                    arrived = gate.arrived();
                    println!("{arrived} arrived at the gate");
                }
                actix_rt::time::sleep(Duration::from_millis(20)).await;
            }
        });
        match posta.run_until_signal().await {
            Ok(()) => {
                println!("ended: well");
                0
            }
            Err(error) => {
                println!("ended: {error}");
                1
            }
        }
    });
    std::process::exit(code);
}
