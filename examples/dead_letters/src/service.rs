use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use tokio::sync::oneshot;

use crate::place::Place;

/// How long the service may take to start, and to end once it is asked to.
const PATIENCE: Duration = Duration::from_secs(60);

/// The service in a process of its own, as the story starts and restarts it. It ends when its
/// standard input does, so it does not outlive the story.
pub(crate) struct Service {
    child: Child,
    stdin: Option<ChildStdin>,
}

impl Service {
    /// Starts this program as the service, and waits until it says that it `runs`.
    pub(crate) async fn start(place: &Place, with_bug: bool, runs: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve", "--until-input-ends"]);
        if with_bug {
            command.arg("--with-bug");
        }
        // URLs hold passwords, and a command line is public.
        command
            .env("DEAD_LETTERS_DATABASE", &place.database)
            .env("DEAD_LETTERS_BROKER", &place.broker)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().context("the service cannot be started")?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let service = Self { child, stdin };
        let (said, heard) = oneshot::channel();
        let runs = runs.to_owned();
        std::thread::spawn(move || {
            let mut said = Some(said);
            // To its end: a pipe that nobody reads would stop the service.
            for line in stdout.lines().map_while(Result::ok) {
                if line.starts_with(&runs)
                    && let Some(said) = said.take()
                {
                    let _ = said.send(());
                }
            }
        });
        match tokio::time::timeout(PATIENCE, heard).await {
            Ok(Ok(())) => Ok(service),
            Ok(Err(_)) => bail!("the service ended before it ran"),
            Err(_) => bail!("the service does not start"),
        }
    }

    /// Lets it drain and end.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.stdin.take());
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait()? {
                ensure!(status.success(), "the service ended with {status}");
                return Ok(());
            }
            ensure!(Instant::now() < end, "the service does not end");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
