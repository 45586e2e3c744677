//! The service as a child process: the test binary itself, called again, as `world::child` does.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdin, Command, Stdio};

use posta::{Broker, Posta, Postgres, Sqlite, Tables};

use super::service::{Version, consumer};
use crate::world::service::quick;
use crate::world::{TestDatabase, World, until};

const ROLE: &str = "POSTA_TEST_LAYOUT_CHILD";

/// A child process that runs the consumer; killed when dropped.
pub(super) struct Process {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Process {
    /// Starts a child and waits until it runs, its queues declared, or has died at its crash point.
    pub(super) async fn start<D: TestDatabase>(
        world: &World<D>,
        partitions: u8,
        version: Version,
        crash_at: Option<&str>,
    ) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("the test binary"));
        command
            .args([
                "--exact",
                "layout::child::run_when_asked",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, D::KIND)
            .env("POSTA_TEST_CHILD_DATABASE", &world.database_url)
            .env("POSTA_TEST_CHILD_TABLES", world.tables.name())
            .env("POSTA_TEST_CHILD_BROKER", &world.broker_url)
            .env("POSTA_TEST_CHILD_PARTITIONS", partitions.to_string())
            .env("POSTA_TEST_CHILD_VERSION", format!("{version:?}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(point) = crash_at {
            command.env("POSTA_CRASH_AT", point);
        }
        let mut child = command.spawn().expect("a child process");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("its standard output"));
        // On a thread of its own: other worlds go on meanwhile.
        let ready = actix_rt::task::spawn_blocking(move || {
            let mut lines = stdout.lines().map_while(Result::ok);
            // Ends at once when the child has died.
            if lines.any(|line| line.contains("child is ready")) {
                // Keeps the pipe from filling up.
                std::thread::spawn(move || lines.for_each(drop));
            }
        });
        ready.await.expect("its first lines");
        Self { child, stdin }
    }

    /// Waits until it has died by itself, at its crash point.
    pub(super) async fn died(mut self) {
        until("a child has reached its crash point", async || {
            self.is_dead()
        })
        .await;
    }

    pub(super) fn is_dead(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_some()
    }

    /// Drains it and waits for its end.
    pub(super) async fn stop(mut self) {
        drop(self.stdin.take());
        until("a child has drained", async || self.is_dead()).await;
    }

    /// Stops its threads where they are, until [`Process::resume`].
    pub(super) fn pause(&self) {
        self.signal("-STOP");
    }

    pub(super) fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill")
            .args([signal, &self.child.id().to_string()])
            .status();
        assert!(status.expect("kill can be run").success());
    }
}

impl Drop for Process {
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
    let env = |name: &str| std::env::var(format!("POSTA_TEST_CHILD_{name}")).unwrap_or_default();
    crate::world::log::show_logs();
    actix::System::new().block_on(async move {
        let broker = Broker::from_url(&env("BROKER")).expect("a valid broker");
        let tables = Tables::named(env("TABLES")).expect("a valid name");
        let partitions = env("PARTITIONS").parse().expect("a number");
        let version = match env("VERSION").as_str() {
            "One" => Version::One,
            _ => Version::Two,
        };
        let builder = Posta::<D>::builder(&env("DATABASE"), broker).tables(tables);
        let posta = quick(builder)
            .consumer(consumer::<D>(partitions, version))
            .start()
            .await
            .expect("a running service");
        posta.declared().await;
        println!("child is ready");
        // The parent closes it when it wants a drain, or when it dies.
        let closed = actix_rt::task::spawn_blocking(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
        });
        closed.await.expect("the end of standard input");
        posta.stop().await.expect("a drain within its grace");
    });
}
