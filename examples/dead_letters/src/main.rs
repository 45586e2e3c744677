//! A handler with a bug, the dead letter that it makes, the key that waits for it, the fix, and the
//! replay.
//!
//! ```text
//! cargo run -p dead_letters                      the story, step by step, on SQLite in dead_letters.db
//! cargo run -p dead_letters -- --unattended      the same without pauses: fails if anything is not as it says
//! cargo run -p dead_letters -- serve             the service by itself, on what the story left
//! cargo run -p dead_letters -- look              what stands where; fails unless everything is booked
//! ```
//!
//! `--database postgres://… --broker amqp://…` tells it on servers; a database and a virtual host
//! that it was not told on before. What it leaves is for the command line, `posta dead-letters …`;
//! it ends with what can be tried. `RUST_LOG=debug` says more.

mod amount;
mod place;
mod postgres;
mod posting;
mod service;
mod sqlite;
mod standing;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tokio::sync::oneshot;
use tracing_subscriber::EnvFilter;

use crate::place::{FILE, Place, remove_earlier};

/// A handler with a bug, the dead letter that it makes, the key that waits for it, the fix, and the
/// replay.
#[derive(Parser)]
#[command(name = "dead_letters", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(flatten)]
    at: At,
    /// Tell the story without pauses, as if nobody looked
    #[arg(long)]
    unattended: bool,
    #[command(subcommand)]
    instead: Option<Instead>,
}

#[derive(Args)]
struct At {
    /// sqlite://FILE or postgres://…; dead_letters.db, made anew by each telling, if not given
    #[arg(long, env = "DEAD_LETTERS_DATABASE", hide_env_values = true)]
    database: Option<String>,
    /// `database`, or amqp://… for RabbitMQ
    #[arg(
        long,
        env = "DEAD_LETTERS_BROKER",
        hide_env_values = true,
        default_value = "database"
    )]
    broker: String,
}

#[derive(Subcommand)]
enum Instead {
    /// Run the service until SIGTERM or SIGINT
    Serve {
        #[command(flatten)]
        at: At,
        /// The version with the bug
        #[arg(long)]
        with_bug: bool,
        /// End when standard input does
        #[arg(long, hide = true)]
        until_input_ends: bool,
    },
    /// Count what stands where; fails unless everything is booked or discarded
    Look {
        #[command(flatten)]
        at: At,
        /// Seconds to wait until it is
        #[arg(long, default_value_t = 0)]
        patience: u64,
    },
}

#[actix::main]
async fn main() -> ExitCode {
    log();
    let outcome = run(Arguments::parse()).await;
    outcome.unwrap_or_else(|error| {
        eprintln!("dead_letters: {error:#}");
        ExitCode::FAILURE
    })
}

async fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    match arguments.instead {
        None => {
            if arguments.at.database.is_none() {
                remove_earlier()?;
            }
            let place = arguments.at.place();
            let pauses = !arguments.unattended && std::io::stdin().is_terminal();
            match place.is_postgres() {
                true => postgres::tell(&place, pauses).await?,
                false => sqlite::tell(&place, pauses).await?,
            }
        }
        Some(Instead::Serve {
            at,
            with_bug,
            until_input_ends,
        }) => {
            let end = end(until_input_ends);
            let place = at.place();
            match place.is_postgres() {
                true => postgres::serve(&place, with_bug, end).await?,
                false => sqlite::serve(&place, with_bug, end).await?,
            }
        }
        Some(Instead::Look { at, patience }) => {
            let (place, patience) = (at.place(), Duration::from_secs(patience));
            let standing = match place.is_postgres() {
                true => postgres::look(&place.database, patience).await?,
                false => sqlite::look(&place.database, patience).await?,
            };
            println!("{standing}");
            if !standing.is_done() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

impl At {
    fn place(self) -> Place {
        let database = self.database.unwrap_or_else(|| format!("sqlite://{FILE}"));
        let broker = self.broker;
        Place { database, broker }
    }
}

/// Ends with standard input, if it shall; never otherwise.
async fn end(with_input: bool) {
    if !with_input {
        return std::future::pending().await;
    }
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        // Whatever comes is not for us; an error is an end too.
        let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = end.await;
}

/// Logs to standard error what `RUST_LOG` says; by default errors alone, since the story's own
/// failures are told by the story.
fn log() {
    let filter = EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
}
