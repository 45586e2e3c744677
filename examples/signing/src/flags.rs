//! The command line.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedI64ValueParser;
use clap::{Parser, Subcommand};

/// Most documents of one run: more would take days, and their numbers have 31 bits.
const DOCUMENTS_MAX: i64 = 1_000_000_000;

/// Signs documents under load, crashes its own consumer and dispatcher part-way, waits until all is
/// quiet, and prints a ledger counted from the tables: nothing may be lost, doubled or out of
/// order.
///
/// A run can be resumed: killed at any moment and started again with the same flags, it goes on to
/// the same end. A run that has ended prints its ledger again; with a larger --documents it goes
/// on.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "signing",
    version,
    verbatim_doc_comment,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Flags {
    /// The database: a SQLite file (a path, or sqlite://path), or
    /// postgres://user:password@host/name. It is kept. Without this flag: a SQLite file in a
    /// temporary folder, removed at the end.
    #[arg(long, value_name = "URL")]
    pub(crate) database: Option<String>,

    /// The broker: "database" (queue tables in the database itself), or
    /// amqp://user:password@host/vhost for RabbitMQ. One virtual host for one database.
    #[arg(long, value_name = "URL", default_value = "database")]
    pub(crate) broker: String,

    /// How many times a document is signed; each is one transaction and one `document.signed`.
    #[arg(long, value_name = "N", default_value_t = 5000, value_parser = from(1..=DOCUMENTS_MAX))]
    pub(crate) documents: i64,

    /// Over how many documents, which are the ordering keys, the signatures are spread.
    #[arg(long, value_name = "K", default_value_t = 100, value_parser = from(1..=1_000_000))]
    pub(crate) keys: i64,

    /// How many percent of the messages are enqueued a second time, with the same message id, after
    /// the first one left.
    #[arg(long, value_name = "PERCENT", default_value_t = 5, value_parser = from(0..=100))]
    pub(crate) duplicates: i64,

    /// Instead of signing: send the webhook deliveries of a JSON Lines file to the service of the
    /// example `webhooks` and prove every payload byte-equal at its archive.
    /// Lines are {"event": …, "delivery": …, "payload": …}.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["documents", "keys"])]
    pub(crate) input: Option<PathBuf>,

    /// Print the ledger as one JSON object, on the last line of standard output.
    #[arg(long)]
    pub(crate) json: bool,

    /// How many seconds may pass without any progress before the run counts as stuck.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = from(1..=86_400))]
    patience: i64,

    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// What the binary does instead of the main job.
#[derive(Clone, Copy, Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a part of the service for a main job that started this process, until its standard
    /// input ends.
    #[command(hide = true)]
    Worker,
}

impl Flags {
    /// How long without any progress is too long.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs(self.patience.unsigned_abs())
    }
}

/// Reads a number of a range.
fn from(range: RangeInclusive<i64>) -> RangedI64ValueParser<i64> {
    clap::value_parser!(i64).range(range)
}

/// Which database a URL or path names; says what is wrong without its password.
pub(crate) fn database_of(url: &str) -> Result<DatabaseKind, String> {
    match url.split_once("://") {
        Some(("postgres" | "postgresql", _)) => Ok(DatabaseKind::Postgres),
        Some(("sqlite", _)) | None => Ok(DatabaseKind::Sqlite),
        Some((scheme, _)) => Err(format!(
            "--database: a SQLite file, sqlite://… or postgres://…, but not {scheme}://…"
        )),
    }
}

/// The databases that the service is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DatabaseKind {
    Sqlite,
    Postgres,
}

/// A URL as it may be shown: without user, password and parameters.
pub(crate) fn shown(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    format!("{scheme}://{rest}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_has_no_password() {
        assert_eq!(
            shown("postgres://a:p@ss@h:1/d?sslmode=disable"),
            "postgres://h:1/d"
        );
        assert_eq!(shown("amqp://h/%2f"), "amqp://h/%2f");
        assert_eq!(shown("/tmp/a@b.db"), "/tmp/a@b.db");
    }

    #[test]
    fn the_flags_are_well_formed() {
        use clap::CommandFactory;
        Flags::command().debug_assert();
    }
}
