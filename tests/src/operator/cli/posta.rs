use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::harness::build;
use crate::world::{TestDatabase, World};

/// The widest line that an answer may have.
const COLUMNS: usize = 100;

/// What a command came to.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

/// The command line on a database.
pub(super) struct Cli {
    url: String,
    tables: String,
}

impl Cli {
    pub(super) fn of<D: TestDatabase>(world: &World<D>) -> Self {
        Self {
            url: world.database_url.clone(),
            tables: world.tables.name().to_owned(),
        }
    }

    /// Runs a command without a terminal; every line of its answer must fit.
    pub(super) async fn run(&self, arguments: &[&str]) -> Answer {
        self.run_with(arguments, &[]).await
    }

    /// The same, with this on its standard input.
    pub(super) async fn run_with(&self, arguments: &[&str], input: &[u8]) -> Answer {
        let command = self.command(arguments);
        let input = input.to_vec();
        let answer = actix_rt::task::spawn_blocking(move || answer(command, &input))
            .await
            .expect("an answer");
        if !arguments.contains(&"--json") && !arguments.contains(&"--print") {
            answer.fits();
        }
        answer
    }

    /// A command that is still to be run.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(path());
        command
            .args(arguments)
            .args(["--tables", &self.tables])
            .env("POSTA_DATABASE", &self.url)
            .env("USER", "ada");
        command
    }

    /// Runs a command that must succeed.
    pub(super) async fn done(&self, arguments: &[&str]) -> String {
        let answer = self.run(arguments).await;
        assert_eq!(answer.code, 0, "{arguments:?}: {answer:?}");
        assert!(
            !answer.stdout.contains('\x1b'),
            "no colour: {}",
            answer.stdout
        );
        answer.stdout
    }

    /// Runs a command with `--json` that must succeed; one value a line.
    pub(super) async fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let mut arguments = arguments.to_vec();
        arguments.push("--json");
        values(&self.done(&arguments).await)
    }
}

impl Answer {
    fn fits(&self) {
        for line in self.stdout.lines() {
            let columns = line.chars().count();
            assert!(columns <= COLUMNS, "{columns} columns: {line}");
        }
    }
}

/// One value a line.
pub(super) fn values(text: &str) -> Vec<Value> {
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}")))
        .collect()
}

/// Runs a command to its end.
pub(super) fn answer(mut command: Command, input: &[u8]) -> Answer {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let mut stdin = child.stdin.take().expect("it is piped");
    // A command that reads no input may have ended already.
    let _ = stdin.write_all(input);
    drop(stdin);
    let output = child.wait_with_output().expect("its end");
    Answer {
        code: output.status.code().expect("it was not killed"),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// The binary.
pub(super) fn path() -> std::path::PathBuf {
    build::binary("posta")
}
