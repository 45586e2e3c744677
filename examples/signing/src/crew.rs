//! The worker processes of a run: started, watched, killed and started again.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::progress::Progress;

/// How long workers may take to drain before they are killed.
const DRAIN_MAX: Duration = Duration::from_secs(10);

/// Between a worker that ended by itself and its next start; twice as long after each further end.
const RESTART_PAUSE_MIN: Duration = Duration::from_millis(250);

/// The longest of these pauses.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(5);

/// A worker that has lived for this long has started well.
const WELL_AFTER: Duration = Duration::from_secs(10);

/// Which part of the service a worker runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    /// No consumers: it only dispatches.
    Dispatcher,
    /// Both consumers. As every process of Posta it dispatches too.
    Consumers,
    /// The service of the example `webhooks`, at this address.
    Webhooks(SocketAddr),
}

impl Role {
    /// The role in messages to the user.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dispatcher => "dispatcher",
            Self::Consumers => "consumers",
            Self::Webhooks(_) => "webhooks",
        }
    }
}

/// What a worker is told, as one line of JSON on its standard input: URLs hold passwords, and a
/// command line is public.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) role: Role,
    pub(crate) database: String,
    pub(crate) broker: String,
}

/// The workers. They end when their standard input does, so none outlives the process that started
/// it.
pub(crate) struct Crew {
    workers: Vec<Worker>,
    progress: Progress,
}

struct Worker {
    order: Order,
    running: Option<(Child, ChildStdin)>,
    start_at: Instant,
    pause: Duration,
}

impl Crew {
    /// Starts a worker for each order.
    pub(crate) fn start(orders: Vec<Order>, progress: &Progress) -> std::io::Result<Self> {
        let worker = |order| Worker {
            order,
            running: None,
            start_at: Instant::now(),
            pause: RESTART_PAUSE_MIN,
        };
        let workers = orders.into_iter().map(worker).collect();
        let mut crew = Self {
            workers,
            progress: progress.clone(),
        };
        crew.watch()?;
        Ok(crew)
    }

    /// Starts what is not running, and says what ended by itself. To be called every now and then.
    pub(crate) fn watch(&mut self) -> std::io::Result<()> {
        for worker in &mut self.workers {
            if let Some((child, _)) = &mut worker.running
                && let Some(status) = child.try_wait()?
            {
                let name = worker.order.role.name();
                self.progress.say(format!(
                    "the {name} worker ended ({status}); it is started again"
                ));
                worker.running = None;
                if worker.start_at.elapsed() > WELL_AFTER {
                    worker.pause = RESTART_PAUSE_MIN;
                }
                worker.start_at = Instant::now() + worker.pause;
                worker.pause = (worker.pause * 2).min(RESTART_PAUSE_MAX);
            }
            if worker.running.is_none() && Instant::now() >= worker.start_at {
                worker.running = Some(worker.order.start(&self.progress)?);
            }
        }
        Ok(())
    }

    /// Kills a worker with SIGKILL and starts it again at once. `false` if it was not running.
    pub(crate) fn kill(&mut self, role: Role) -> std::io::Result<bool> {
        let mut killed = false;
        for worker in self
            .workers
            .iter_mut()
            .filter(|worker| worker.order.role == role)
        {
            if let Some((mut child, _stdin)) = worker.running.take() {
                child.kill()?;
                child.wait()?;
                killed = true;
            }
        }
        self.watch()?;
        Ok(killed)
    }

    /// Lets the workers drain, and kills those that take too long.
    pub(crate) async fn stop(mut self) {
        for worker in &mut self.workers {
            if let Some((_, stdin)) = worker.running.as_mut() {
                // Nothing can be left in it: each order was flushed.
                let _ = stdin.flush();
            }
        }
        let children: Vec<Child> = self
            .workers
            .iter_mut()
            .filter_map(|worker| worker.running.take())
            .map(|(child, _)| child)
            .collect();
        let deadline = Instant::now() + DRAIN_MAX;
        for mut child in children {
            while matches!(child.try_wait(), Ok(None)) {
                if Instant::now() >= deadline {
                    let _ = child.kill();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

impl Order {
    /// An order to run this part of the service.
    pub(crate) fn new(role: Role, database: &str, broker: &str) -> Self {
        Self {
            role,
            database: database.to_owned(),
            broker: broker.to_owned(),
        }
    }

    fn start(&self, progress: &Progress) -> std::io::Result<(Child, ChildStdin)> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("worker")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        // A process group of its own: Ctrl-C is for the parent, which lets its workers drain.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let mut stdin = child.stdin.take().expect("it is piped");
        let mut order = serde_json::to_string(self).expect("an order has an encoding");
        order.push('\n');
        // A worker that is dead already is noticed by its exit.
        let _ = stdin.write_all(order.as_bytes());
        let stderr = child.stderr.take().expect("it is piped");
        let (progress, name) = (progress.clone(), self.role.name());
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                progress.say(format!("{name}: {line}"));
            }
        });
        Ok((child, stdin))
    }
}
