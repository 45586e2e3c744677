use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::harness::build;

/// Longest time that a program may take to start, and to end once it is asked to.
const PATIENCE: Duration = Duration::from_secs(60);

/// An example's process. It is killed when dropped.
pub(super) struct Program {
    name: &'static str,
    child: Child,
    stdout: BufReader<ChildStdout>,
    said: Arc<Mutex<String>>,
}

/// The command that runs an example.
pub(super) fn command(name: &'static str) -> Command {
    Command::new(build::binary(name))
}

impl Program {
    /// Starts an example in a folder of its own.
    pub(super) fn start(name: &'static str, folder: &Path, set: impl FnOnce(&mut Command)) -> Self {
        let mut command = command(name);
        set(&mut command);
        command.current_dir(folder).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("an example can be run");
        let stdout = BufReader::new(child.stdout.take().expect("it has an output"));
        let said = Arc::<Mutex<String>>::default();
        let stderr = BufReader::new(child.stderr.take().expect("it has a log"));
        let log = said.clone();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let mut log = log.lock().expect("no panic while logging");
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self {
            name,
            child,
            stdout,
            said,
        }
    }

    /// Waits for a line of its output with this text in it, and gives it back.
    pub(super) fn line_with(&mut self, text: &str) -> String {
        loop {
            let mut line = String::new();
            let bytes = self
                .stdout
                .read_line(&mut line)
                .expect("its output is text");
            assert!(bytes > 0, "{} has ended without {text:?}", self.name);
            if line.contains(text) {
                return line;
            }
        }
    }

    /// Kills it, as a power cut would.
    pub(super) fn kill(mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }

    /// Asks it to end, as Kubernetes would, and checks that it does so well.
    pub(super) fn terminate(mut self) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .expect("kill can be run");
        assert!(sent.success(), "{} takes a signal", self.name);
        let status = self.ended();
        assert!(status.success(), "{} ends well: {status}", self.name);
    }

    fn ended(&mut self) -> ExitStatus {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("it can be waited for") {
                return status;
            }
            assert!(Instant::now() < end, "{} does not end", self.name);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let mut rest = String::new();
            let _ = self.stdout.read_to_string(&mut rest);
            let said = self
                .said
                .lock()
                .map(|said| said.clone())
                .unwrap_or_default();
            eprintln!("---- {} said:\n{rest}{said}----", self.name);
        }
    }
}
