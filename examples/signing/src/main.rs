//! Documents are signed, `document.signed` goes out, and each signature is notified exactly once
//! and in order.
//!
//! ```text
//! cargo run --release                 SQLite and the database broker: nothing to install
//! cargo run --release -- --database postgres://user:password@localhost/name \
//!     --broker amqp://user:password@localhost/vhost
//! cargo run --release -- --help
//! ```
//!
//! `sqlite::service` is the service: its tables, messages, handlers, and `sign()`. Everything
//! else puts it under load, crashes it, and keeps account; [`sqlite::job`] says how. Both are
//! compiled twice, once per database, from one source: the two files `sqlite.rs` and `postgres.rs`
//! name the database and mount the same folder.

mod crew;
mod error;
mod flags;
mod folder;
mod input;
mod ledger;
mod postgres;
mod progress;
mod sqlite;

use std::io::{BufRead, Write};
use std::process::ExitCode;

use clap::Parser;
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::crew::{Order, Role};
use crate::error::JobError;
use crate::flags::{Command, DatabaseKind, Flags, database_of};
use crate::folder::Folder;
use crate::progress::Progress;

/// What is logged unless `RUST_LOG` says otherwise: `RUST_LOG=warn` tells of every try during an
/// outage, in every process. The AMQP client's own errors reach the user through Posta.
const LOG_DEFAULT: &str = "error,lapin=off";

fn main() -> ExitCode {
    let flags = Flags::parse();
    let outcome = match flags.command {
        Some(Command::Worker) => {
            log_to(std::io::stderr);
            actix::System::new()
                .block_on(worker())
                .map(|()| ExitCode::SUCCESS)
        }
        None => {
            let progress = Progress::new();
            let above_the_bars = progress.clone();
            log_to(move || above_the_bars.clone());
            actix::System::new().block_on(main_job(&flags, &progress))
        }
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("signing: {}", error.chain());
        ExitCode::from(error.exit_code())
    })
}

/// Runs the main job and prints its ledger.
async fn main_job(flags: &Flags, progress: &Progress) -> Result<ExitCode, JobError> {
    // Removed at the end, whatever it is.
    let _folder;
    let database = match &flags.database {
        Some(database) => database.clone(),
        None => {
            let folder = Folder::temporary()?;
            let file = folder.file("signing.db");
            _folder = folder;
            file
        }
    };
    let kind = database_of(&database).map_err(JobError::Usage)?;
    let (text, holds) = match &flags.input {
        Some(file) => {
            let report = input::run(flags, file, &database, progress).await?;
            let text = match flags.json {
                true => input::json(&report),
                false => format!("\n{report}\n"),
            };
            (text, report.is_right())
        }
        None => {
            let ledger = match kind {
                DatabaseKind::Postgres => postgres::job::run(flags, &database, progress).await?,
                DatabaseKind::Sqlite => sqlite::job::run(flags, &database, progress).await?,
            };
            if let Some(stuck) = &ledger.stuck {
                eprintln!("signing: {stuck}");
            }
            let violations = ledger.violations();
            let text = match flags.json {
                true => {
                    violations
                        .iter()
                        .for_each(|violation| eprintln!("signing: {violation}"));
                    ledger.json()
                }
                false => format!("\n{ledger}\n"),
            };
            (text, violations.is_empty())
        }
    };
    writeln!(std::io::stdout(), "{text}")?;
    Ok(match holds {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Runs a worker until its standard input ends, which it does when the process that started it
/// does.
async fn worker() -> Result<(), JobError> {
    let mut order = String::new();
    std::io::stdin().lock().read_line(&mut order)?;
    let order: Order = serde_json::from_str(&order).map_err(|_| {
        JobError::Usage("a worker is started by a main job, not by hand".to_owned())
    })?;
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        // Whatever comes is not for us; an error is an end too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let kind = database_of(&order.database).map_err(JobError::Usage)?;
    match (order.role, kind) {
        (Role::Webhooks(address), _) => input::work(&order, address, end).await,
        (_, DatabaseKind::Postgres) => postgres::job::work(order, end).await,
        (_, DatabaseKind::Sqlite) => sqlite::job::work(order, end).await,
    }
}

/// Errors go to standard error.
fn log_to<W: for<'w> MakeWriter<'w> + Send + Sync + 'static>(writer: W) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(LOG_DEFAULT));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .init();
}

/// Waits for Ctrl-C or SIGTERM.
async fn interrupted() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be caught");
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminate.recv() => {}
        }
    }
    #[cfg(not(unix))]
    {
        let _ = tokio::signal::ctrl_c().await;
    }
}
