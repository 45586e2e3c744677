//! A place for one process of a service: the parent's side. The process in it dies and is started
//! again, the seat stays.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::points::Point;
use super::service::{CHILD, Orders, READY};

/// The signal of `abort`, by which a process dies at a crash point.
const SIGABRT: i32 = 6;

pub(super) struct Seat {
    pub(super) name: &'static str,
    pub(super) orders: Orders,
    /// What its processes are broken by, if by anything.
    pub(super) broken: Option<&'static str>,
    log: PathBuf,
    running: Option<Running>,
}

struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    ready: Arc<AtomicBool>,
    aim: Option<Point>,
    since: Instant,
    stopped: bool,
    /// Where its part of the log begins.
    log_at: u64,
}

/// How a process ended by itself.
#[derive(Debug)]
pub(super) enum End {
    /// At the point that it was to die at.
    Crashed(&'static str),
    /// In any other way, and what it said last.
    Unasked(String),
}

impl Seat {
    pub(super) fn new(
        name: &'static str,
        orders: Orders,
        broken: Option<&'static str>,
        logs: &Path,
    ) -> Self {
        Self {
            name,
            orders,
            broken,
            log: logs.join(format!("{name}.log")),
            running: None,
        }
    }

    /// Starts a process, which is to die at a point when it passes it for the nth time.
    pub(super) fn start(&mut self, aim: Option<(Point, u64)>) {
        let mut log = self.open_log();
        let log_at = log.seek(SeekFrom::End(0)).expect("the end of the log");
        let mut command = Command::new(std::env::current_exe().expect("the test binary"));
        let entry = ["--exact", "faults::service::run_when_asked", "--nocapture"];
        let orders = serde_json::to_string(&self.orders).expect("orders as text");
        command
            .args(entry)
            .arg("--test-threads=1")
            .env(CHILD, orders)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log);
        if std::env::var_os("RUST_LOG").is_none() {
            command.env("RUST_LOG", "posta=info");
        }
        if let Some((point, times)) = aim {
            command.env("POSTA_CRASH_AT", format!("{}:{times}", point.name));
        }
        if let Some(mistake) = self.broken {
            command.env("POSTA_BROKEN", mistake);
        }
        let mut child = command.spawn().expect("a child process");
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("its standard output"));
        let ready = Arc::new(AtomicBool::new(false));
        let says = ready.clone();
        // Ends with the child.
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if line.contains(READY) {
                    says.store(true, Ordering::SeqCst);
                }
            }
        });
        self.running = Some(Running {
            child,
            stdin,
            ready,
            aim: aim.map(|(point, _)| point),
            since: Instant::now(),
            stopped: false,
            log_at,
        });
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether its process serves: its consumers' queues are there.
    pub(super) fn is_ready(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.ready.load(Ordering::SeqCst))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.running.as_ref().is_some_and(|running| running.stopped)
    }

    /// The point at which its process is to die.
    pub(super) fn aim(&self) -> Option<&'static str> {
        Some(self.running.as_ref()?.aim?.name)
    }

    /// How long its process has been there.
    pub(super) fn age(&self) -> std::time::Duration {
        let running = self.running.as_ref();
        running
            .map(|running| running.since.elapsed())
            .unwrap_or_default()
    }

    /// How its process has ended by itself, if it has.
    pub(super) fn ended(&mut self) -> Option<End> {
        let running = self.running.as_mut()?;
        let status = running.child.try_wait().expect("its state")?;
        let end = self.end(status);
        self.running = None;
        Some(end)
    }

    fn end(&self, status: ExitStatus) -> End {
        let running = self.running.as_ref().expect("one that has ended");
        let said = self.said(running.log_at);
        let reached = |point: &str| said.contains(&format!("crash point {point} reached"));
        match running.aim {
            Some(point) if status.signal() == Some(SIGABRT) && reached(point.name) => {
                End::Crashed(point.name)
            }
            _ => {
                let tail = said.len().saturating_sub(2000);
                let tail = said.get(tail..).unwrap_or(&said);
                End::Unasked(format!("{status}, aim {:?}: {tail}", running.aim))
            }
        }
    }

    /// What its process has said on standard error since.
    fn said(&self, from: u64) -> String {
        let mut log = self.open_log();
        let mut said = Vec::new();
        let read = log
            .seek(SeekFrom::Start(from))
            .and_then(|_| log.read_to_end(&mut said));
        read.expect("the log can be read");
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Kills its process as SIGKILL does: nothing is flushed, nothing is said. `true`: there was one,
    /// that had not ended by itself.
    pub(super) fn kill(&mut self) -> Option<End> {
        if let Some(end) = self.ended() {
            return Some(end);
        }
        if let Some(mut running) = self.running.take() {
            running.child.kill().expect("a child that can be killed");
            running.child.wait().expect("its end");
        }
        None
    }

    /// Freezes its process, or lets it go on.
    pub(super) fn freeze(&mut self, frozen: bool) {
        if let Some(running) = &mut self.running {
            signal(&running.child, if frozen { "STOP" } else { "CONT" });
            running.stopped = frozen;
        }
    }

    /// Asks its process to drain.
    pub(super) fn drain(&mut self) {
        if let Some(running) = &mut self.running {
            drop(running.stdin.take());
        }
    }

    /// Whether a process that was asked to drain has ended, and well.
    pub(super) fn drained(&mut self) -> Option<Result<(), String>> {
        let running = self.running.as_mut()?;
        let status = running.child.try_wait().expect("its state")?;
        let ended = match status.success() {
            true => Ok(()),
            false => Err(format!("{:?}", self.end(status))),
        };
        self.running = None;
        Some(ended)
    }

    fn open_log(&self) -> File {
        let log = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(&self.log);
        log.expect("the log can be written")
    }
}

fn signal(child: &Child, name: &str) {
    let mut kill = Command::new("kill");
    let sent = kill.arg(format!("-{name}")).arg(child.id().to_string());
    // It may have ended in the meantime.
    let _ = sent.stderr(Stdio::null()).status();
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(mut running) = self.running.take() {
            let _ = running.child.kill();
            let _ = running.child.wait();
        }
    }
}
