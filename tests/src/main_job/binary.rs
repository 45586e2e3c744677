use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::harness::build;

/// The longest time that a run may take.
const PATIENCE: Duration = Duration::from_secs(300);

/// The main job's binary.
pub(super) fn path() -> PathBuf {
    build::binary("signing")
}

/// A run of the main job. Killed if the test ends before it does; its workers end by themselves
/// then.
pub(super) struct Run {
    child: Child,
}

impl Run {
    /// Starts it.
    pub(super) fn start(arguments: &[&str]) -> Self {
        let child = Command::new(path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary runs");
        Self { child }
    }

    /// Whether it still runs.
    pub(super) fn runs(&mut self) -> bool {
        self.child.try_wait().expect("its state").is_none()
    }

    /// Kills it as SIGKILL does.
    pub(super) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("its end");
    }

    /// The process ids of its workers.
    pub(super) fn workers(&self) -> Vec<u32> {
        let process = self.child.id();
        let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
        let tasks = tasks.into_iter().flatten().flatten();
        let children = tasks.map(|task| std::fs::read_to_string(task.path().join("children")));
        let children: String = children.flatten().collect::<Vec<_>>().join(" ");
        children
            .split_whitespace()
            .filter_map(|id| id.parse().ok())
            .collect()
    }

    /// Waits for its end.
    pub(super) fn end(mut self) -> Output {
        // Both pipes are read while it runs, so that it never waits for a reader.
        let read = |pipe: Option<Box<dyn Read + Send>>| {
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                pipe.expect("it is piped")
                    .read_to_end(&mut bytes)
                    .expect("its output");
                bytes
            })
        };
        let stdout = read(self.child.stdout.take().map(|pipe| Box::new(pipe) as _));
        let stderr = read(self.child.stderr.take().map(|pipe| Box::new(pipe) as _));
        let began = Instant::now();
        while self.runs() {
            if began.elapsed() > PATIENCE {
                self.child.kill().expect("it can be killed");
                let stderr = stderr.join().expect("its errors");
                panic!(
                    "not at its end after {PATIENCE:?}: {}",
                    String::from_utf8_lossy(&stderr)
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Output {
            status: self.child.wait().expect("its end"),
            stdout: stdout.join().expect("its output"),
            stderr: stderr.join().expect("its errors"),
        }
    }

    /// Waits for its end and reads the ledger, the last line of its standard output.
    ///
    /// # Panics
    /// When it failed or there is no ledger.
    pub(super) fn ledger(self) -> Value {
        let output = self.end();
        let stdout = String::from_utf8_lossy(&output.stdout);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{}: {stdout}\n{stderr}",
            output.status
        );
        let last = stdout.lines().last().expect("a last line");
        serde_json::from_str(last).expect("one JSON object")
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.runs() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Checks a ledger against what was asked for.
pub(super) fn assert_holds(ledger: &Value, documents: i64, duplicates_percent: i64) {
    let number = |name: &str| {
        ledger[name]
            .as_i64()
            .unwrap_or_else(|| panic!("{name}: {ledger}"))
    };
    let copies = documents * duplicates_percent / 100;
    assert_eq!(number("signed"), documents, "{ledger}");
    assert_eq!(number("enqueued"), documents + copies, "{ledger}");
    assert_eq!(number("dispatched"), documents + copies, "{ledger}");
    assert_eq!(number("delivered"), documents + copies, "{ledger}");
    assert_eq!(number("duplicates_refused"), copies, "{ledger}");
    assert_eq!(number("notified"), documents, "{ledger}");
    for zero in ["lost", "doubled", "out_of_order", "unfounded", "left"] {
        assert_eq!(number(zero), 0, "{zero}: {ledger}");
    }
    let latency = |name: &str| ledger["latency_ms"][name].as_f64().expect("a latency");
    assert!(
        latency("p50") <= latency("p95") && latency("p95") <= latency("p99"),
        "{ledger}"
    );
}
