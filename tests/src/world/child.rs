//! The test's service as a child process that can be killed: the test binary itself, called again.
//!
//! The child runs [`run_when_asked`] as a test of that name: it does nothing unless the environment
//! says that this is a child. It lives until its standard input closes, so no child outlives its
//! parent.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, Command, Stdio};

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

    /// Whether it has died.
    pub(crate) fn is_dead(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_some()
    }

    /// Waits this long for its death, at most.
    pub(crate) async fn dies_within(&mut self, patience: std::time::Duration) {
        let started = std::time::Instant::now();
        while !self.is_dead() && started.elapsed() < patience {
            actix_rt::time::sleep(std::time::Duration::from_millis(20)).await;
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

fn run<D: TestDatabase>() {
    let env = |name: &str| std::env::var(format!("POSTA_TEST_CHILD_{name}"));
    super::log::show_logs();
    actix::System::new().block_on(async move {
        let broker = Broker::from_url(&env("BROKER").expect("a broker")).expect("a valid broker");
        let tables = Tables::named(env("TABLES").expect("tables")).expect("a valid name");
        let builder = Posta::<D>::builder(&env("DATABASE").expect("a database"), broker);
        let attempts = env("ATTEMPTS").ok().and_then(|text| text.parse().ok());
        let dispatch = DispatchPolicy::default().attempts_max(attempts.unwrap_or(ATTEMPTS_DEFAULT));
        let posta = quick(builder.tables(tables))
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
