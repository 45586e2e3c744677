//! The test's service as a child process that can be killed: the test binary itself, called again.
//!
//! The child runs [`run_when_asked`] as a test of that name: it does nothing unless the environment
//! says that this is a child. It lives until its standard input closes, so no child outlives its
//! parent.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posta::outbox::{ATTEMPTS_DEFAULT, DispatchPolicy};
use posta::{Broker, Posta, Postgres, Sqlite, Tables};

use super::service::{Calls, echoes_consumer, effects_consumer, enqueue, quick};
use super::{TestDatabase, World};

const ROLE: &str = "POSTA_TEST_CHILD";

/// A child process that runs the service.
pub(crate) struct Service {
    child: Child,
    stdin: Option<ChildStdin>,
}

/// What a child does beside running both consumers and the dispatchers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Orders {
    /// At which crash point it dies, and at which hit.
    pub(crate) crash_at: Option<String>,
    /// Enqueue so many numbers for so many keys (keys, from, to), then go on.
    pub(crate) enqueue: Option<(usize, i64, i64)>,
    /// How often a dispatch may fail, if not as often as by default.
    pub(crate) dispatch_attempts: Option<u32>,
    /// What it does at which crash point, beginning with which hit.
    pub(crate) at: Option<(Deed, &'static str, u64)>,
    /// How long its leases last, in seconds, if not as long as in other tests.
    pub(crate) lease_ttl_s: Option<u64>,
    /// What its environment has in addition.
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// What a child does at a crash point instead of dying.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Deed {
    /// It is paused, once, until somebody wakes it.
    Pause,
    /// The actor that comes there panics, each time.
    Panic,
}

impl Service {
    /// Starts a child on the world and waits until it says that it runs, or has died at its crash
    /// point.
    pub(crate) fn start<D: TestDatabase>(world: &World<D>, orders: &Orders) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("the test binary"));
        command
            .args([
                "--exact",
                "world::child::run_when_asked",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, D::KIND)
            .env("POSTA_TEST_CHILD_DATABASE", &world.database_url)
            .env("POSTA_TEST_CHILD_TABLES", world.tables.name())
            .env("POSTA_TEST_CHILD_BROKER", &world.broker_url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(point) = &orders.crash_at {
            command.env("POSTA_CRASH_AT", point);
        }
        if let Some((keys, from, to)) = orders.enqueue {
            command.env("POSTA_TEST_CHILD_ENQUEUE", format!("{keys} {from} {to}"));
        }
        if let Some(attempts) = orders.dispatch_attempts {
            command.env("POSTA_TEST_CHILD_ATTEMPTS", attempts.to_string());
        }
        if let Some((deed, point, hit)) = orders.at {
            command.env("POSTA_TEST_CHILD_AT", format!("{deed:?} {point} {hit}"));
        }
        if let Some(seconds) = orders.lease_ttl_s {
            command.env("POSTA_TEST_CHILD_LEASE_TTL", seconds.to_string());
        }
        command.envs(orders.environment.iter().cloned());
        let mut child = command.spawn().expect("a child process");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("its standard output"));
        let mut lines = stdout.lines();
        // Ends at once when the child has died.
        let ready = lines
            .by_ref()
            .map_while(Result::ok)
            .any(|line| line.contains("child is ready"));
        if ready {
            // Keeps the pipe from filling up.
            std::thread::spawn(move || lines.for_each(drop));
        }
        Self { child, stdin }
    }

    /// Kills it as SIGKILL does: nothing is flushed, nothing is said.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("a child that can be killed");
        self.child.wait().expect("its end");
    }

    /// Pauses it as SIGSTOP does.
    pub(crate) fn pause(&self) {
        signal(self.child.id(), "STOP");
    }

    /// Has it go on after a pause.
    pub(crate) fn wake(&self) {
        signal(self.child.id(), "CONT");
    }

    /// Waits until it is paused.
    pub(crate) async fn paused(&self) {
        let path = format!("/proc/{}/stat", self.child.id());
        super::until("a child is paused", async || {
            let stat = std::fs::read_to_string(&path).expect("its state");
            // The name, which can hold anything, is in parentheses.
            let (_, state) = stat.rsplit_once(") ").expect("a state after the name");
            state.starts_with('T')
        })
        .await;
    }

    /// Whether it has died.
    pub(crate) fn is_dead(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_some()
    }

    /// Waits this long for its death, at most.
    pub(crate) async fn dies_within(&mut self, patience: Duration) {
        let started = std::time::Instant::now();
        while !self.is_dead() && started.elapsed() < patience {
            actix_rt::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until it has died by itself, at its crash point.
    pub(crate) async fn died(mut self) {
        super::until("a child has reached its crash point", async || {
            self.child.try_wait().expect("its state").is_some()
        })
        .await;
    }

    /// Drains it and waits for its end.
    pub(crate) async fn stop(mut self) {
        drop(self.stdin.take());
        super::until("a child has drained", async || {
            self.child.try_wait().expect("its state").is_some()
        })
        .await;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
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

/// Sends a signal.
fn signal(id: u32, name: &str) {
    let sent = Command::new("kill")
        .args([format!("-{name}"), id.to_string()])
        .status();
    assert!(
        sent.expect("signals can be sent").success(),
        "SIG{name} to {id}"
    );
}

/// What this child was asked to do at a crash point.
static AT: OnceLock<(Deed, String, u64)> = OnceLock::new();
/// How often it has come there.
static HITS: AtomicU64 = AtomicU64::new(0);

fn at_crash_point(reached: &'static str) {
    let Some((deed, point, first)) = AT.get() else {
        return;
    };
    if point != reached {
        return;
    }
    let hit = HITS.fetch_add(1, Ordering::SeqCst) + 1;
    match deed {
        Deed::Pause if hit == *first => signal(std::process::id(), "STOP"),
        Deed::Panic if hit >= *first => panic!("told to panic at {point}"),
        Deed::Pause | Deed::Panic => {}
    }
}

/// Reads what the parent asks for at crash points.
fn heed(orders: &str) {
    let mut words = orders.split(' ');
    let deed = match words.next() {
        Some("Pause") => Deed::Pause,
        Some("Panic") => Deed::Panic,
        other => panic!("no such deed: {other:?}"),
    };
    let point = words.next().expect("a crash point").to_owned();
    let hit = words.next().and_then(|hit| hit.parse().ok());
    let _ = AT.set((deed, point, hit.expect("a number")));
    posta::supervision::at_crash_points(at_crash_point);
}

fn run<D: TestDatabase>() {
    let env = |name: &str| std::env::var(format!("POSTA_TEST_CHILD_{name}"));
    super::log::show_logs();
    if let Ok(orders) = env("AT") {
        heed(&orders);
    }
    actix::System::new().block_on(async move {
        let broker = Broker::from_url(&env("BROKER").expect("a broker")).expect("a valid broker");
        let tables = Tables::named(env("TABLES").expect("tables")).expect("a valid name");
        let builder = Posta::<D>::builder(&env("DATABASE").expect("a database"), broker);
        let attempts = env("ATTEMPTS").ok().and_then(|text| text.parse().ok());
        let dispatch = DispatchPolicy::default().attempts_max(attempts.unwrap_or(ATTEMPTS_DEFAULT));
        let mut builder = quick(builder.tables(tables));
        if let Some(seconds) = env("LEASE_TTL").ok().and_then(|text| text.parse().ok()) {
            builder = builder.lease_ttl(Duration::from_secs(seconds));
        }
        let posta = builder
            .dispatch(dispatch)
            .consumer(effects_consumer::<D>(&Calls::default()))
            .consumer(echoes_consumer::<D>())
            .start()
            .await
            .expect("a running service");
        println!("child is ready");
        if let Ok(orders) = env("ENQUEUE") {
            let numbers: Vec<i64> = orders
                .split(' ')
                .map(|n| n.parse().expect("a number"))
                .collect();
            enqueue(
                &posta,
                numbers[0] as usize,
                numbers[1]..numbers[2],
                |_, _| super::service::Fate::Echo,
            )
            .await;
        }
        // The parent closes it when it wants a drain, or when it dies.
        let closed = actix_rt::task::spawn_blocking(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        });
        closed.await.expect("the end of standard input");
        posta.stop().await.expect("a drain within its grace");
    });
}
