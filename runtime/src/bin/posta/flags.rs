use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use posta::operations::operator::{RATE_MAX, REASON_BYTES_MAX};
use posta::store::LetterState;

use crate::exit::EXIT_CODES;
use crate::filter::FilterFlags;
use crate::moment::{Moment, parse_duration};

/// Looks at what Posta keeps in a database, and repairs what failed.
///
/// Every command that changes something shows first what it would do, and does it with --yes, or
/// when it is confirmed in a terminal. Times are UTC. With --json each answer is one JSON object;
/// lists are one object a line.
#[derive(Clone, Debug, Parser)]
#[command(name = "posta", version, verbatim_doc_comment, after_help = EXIT_CODES, after_long_help = EXIT_CODES)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Where, and how to answer.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Where")]
pub(crate) struct Place {
    /// The database; POSTA_DATABASE if it is not given
    ///
    /// postgres://user:password@host/name, or a SQLite file: a path, or sqlite://path
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) database: Option<String>,

    /// Schema or prefix of Posta's tables
    #[arg(long, global = true, value_name = "NAME", default_value = "posta")]
    pub(crate) tables: String,

    /// A pooler in transaction mode (PgBouncer) stands before PostgreSQL
    #[arg(long, global = true)]
    pub(crate) transaction_pooler: bool,

    /// Answer in JSON: one object, or one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Who does it, why, and whether it is meant.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "On record")]
pub(crate) struct Deed {
    /// Why, for the record: 1 to 2,000 bytes
    #[arg(long, value_name = "TEXT", value_parser = parse_reason)]
    pub(crate) reason: String,

    /// Who, for the record: 1 to 200 bytes; USER if it is not given
    #[arg(long, value_name = "NAME")]
    pub(crate) who: Option<String>,

    /// Do it without asking
    #[arg(long)]
    pub(crate) yes: bool,

    /// Only show what it would do
    #[arg(long, conflicts_with = "yes")]
    pub(crate) dry_run: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Command {
    /// What waits, what is on hold, what is dead
    Status,
    /// Create Posta's tables or bring them up to date
    Migrate(MigrateFlags),
    /// Messages that were set aside
    #[command(subcommand)]
    DeadLetters(DeadLetters),
    /// Selections of dead letters that are sent on their way again, step by step
    #[command(subcommand)]
    ReplayRuns(ReplayRuns),
    /// Send kept rows of the outbox again, with their old ids
    ///
    /// Repairs a broker that lost its disk, or a queue that was deleted with messages in it: what
    /// was handled is refused by the consumers' inboxes.
    #[command(verbatim_doc_comment)]
    Redispatch(RedispatchFlags),
    /// How many partitions a consumer has; `posta status` shows it
    #[command(subcommand)]
    Layout(LayoutCommand),
    /// What operators did, the newest first
    Record(RecordFlags),
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum LayoutCommand {
    /// Say that bindings were moved to the queues of the next layout
    ///
    /// Only where an operator provides the queues: bind the new ones first, then unbind those in
    /// use, then say so.
    #[command(verbatim_doc_comment)]
    Bound(LayoutFlags),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct LayoutFlags {
    /// Whose queues
    #[arg(value_name = "CONSUMER")]
    pub(crate) consumer: String,

    #[command(flatten)]
    pub(crate) deed: Deed,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct MigrateFlags {
    /// Print the statements that create the tables, all versions, and change nothing
    #[arg(long)]
    pub(crate) print: bool,

    /// Do it without asking
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum DeadLetters {
    /// List letters, the oldest first
    List(ListFlags),
    /// Count letters that are alike: origin, type, kind of error, fingerprint
    Groups(GroupsFlags),
    /// Show one letter: message, error, revisions, record, what waits behind it
    Show(ShowFlags),
    /// Send letters on their way again
    ///
    /// One letter goes at once. Several, or a selection, become a replay run: it is frozen in the
    /// database, and the running services carry it out, in order, the head of each key first.
    #[command(verbatim_doc_comment)]
    Replay(ReplayFlags),
    /// Give a letter's message another payload; message id, type, key and headers stay
    ///
    /// The original is kept. The letter stays dead: replay it afterwards.
    #[command(verbatim_doc_comment)]
    Edit(EditFlags),
    /// Let the keys of parked letters go on without them; the letters stay dead
    Skip(EndFlags),
    /// Drop letters; those that are parked let their keys go on
    Discard(EndFlags),
    /// Make discarded letters dead again
    Restore(EndFlags),
    /// Take letters back that are on their way and do not get there; they are dead again
    ///
    /// For what no process runs: its consumer is gone, or its row was deleted by hand. A message
    /// that a running process is at stays.
    #[command(verbatim_doc_comment)]
    Recall(EndFlags),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ListFlags {
    #[command(flatten)]
    pub(crate) filter: FilterFlags,

    /// In this state: dead, replaying, replayed, discarded; may be repeated
    #[arg(long, value_name = "STATE", hide_possible_values = true)]
    pub(crate) state: Vec<StateFlag>,

    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,

    /// The next page: only letters after this one
    #[arg(long, value_name = "LETTER")]
    pub(crate) after: Option<i64>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct GroupsFlags {
    #[command(flatten)]
    pub(crate) filter: FilterFlags,

    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ShowFlags {
    /// Which letter
    #[arg(value_name = "LETTER")]
    pub(crate) letter: i64,

    /// Write only the payload, byte for byte
    #[arg(long)]
    pub(crate) payload: bool,

    /// With --payload: of this revision; 0 is the original
    #[arg(long, value_name = "N", requires = "payload")]
    pub(crate) revision: Option<u32>,

    /// Show at most so many of those that wait behind it
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(0..=1000))]
    pub(crate) successors: u16,
}

/// Letters by their numbers, or by a selection.
#[derive(Clone, Debug, Args)]
pub(crate) struct Selected {
    /// Which letters
    #[arg(value_name = "LETTER")]
    pub(crate) letters: Vec<i64>,

    /// All of them, when no letter and no filter is given
    #[arg(long)]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) filter: FilterFlags,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct ReplayFlags {
    #[command(flatten)]
    pub(crate) selected: Selected,

    /// At most so many letters a second, over all processes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(RATE_MAX)))]
    pub(crate) rate: Option<u32>,

    /// Stop when so many have died again
    ///
    /// Never more than so many are on their way at once.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(i32::MAX)))]
    pub(crate) failures_max: Option<u32>,

    /// What failed longer ago is flagged
    ///
    /// How long the inbox remembers what was handled.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = parse_duration)]
    pub(crate) inbox_retention: Duration,

    #[command(flatten)]
    pub(crate) deed: Deed,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct EditFlags {
    /// Which letter
    #[arg(value_name = "LETTER")]
    pub(crate) letter: i64,

    /// The new payload, byte for byte; - for standard input
    ///
    /// Without it, in a terminal, your editor opens.
    #[arg(long, value_name = "FILE")]
    pub(crate) payload_file: Option<PathBuf>,

    /// The version of the schema that the payload has now
    #[arg(long, value_name = "N")]
    pub(crate) schema_version: Option<u32>,

    /// The payload's content type now
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,

    #[command(flatten)]
    pub(crate) deed: Deed,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct EndFlags {
    #[command(flatten)]
    pub(crate) selected: Selected,

    #[command(flatten)]
    pub(crate) deed: Deed,
}

#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ReplayRuns {
    /// List runs, the newest first
    List {
        /// At most so many
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1000))]
        limit: u16,
    },
    /// Show one run
    Show {
        /// Which run
        #[arg(value_name = "RUN")]
        run: i64,
    },
    /// Pause a run; what is on its way stays so
    Pause(RunFlags),
    /// Let a run go on that was paused, or has stopped since letters died again
    Resume(RunFlags),
    /// End a run for good; what waits in it stays dead
    Cancel(RunFlags),
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RunFlags {
    /// Which run
    #[arg(value_name = "RUN")]
    pub(crate) run: i64,

    #[command(flatten)]
    pub(crate) deed: Deed,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RedispatchFlags {
    /// Only rows dispatched since this time (UTC): 2026-01-31 09:30, or 12h ago
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<Moment>,

    /// Only rows dispatched before this time (UTC); now at the latest
    #[arg(long, value_name = "TIME")]
    pub(crate) before: Option<Moment>,

    /// Only this message type
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) message_type: Option<String>,

    /// Only this ordering key
    #[arg(long, value_name = "KEY")]
    pub(crate) key: Option<String>,

    /// All kept rows, when nothing else is given
    #[arg(long)]
    pub(crate) all: bool,

    #[command(flatten)]
    pub(crate) deed: Deed,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RecordFlags {
    /// Only what was done to this letter
    #[arg(long, value_name = "LETTER")]
    pub(crate) letter: Option<i64>,

    /// At most so many
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
}

/// A letter's state on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StateFlag {
    Dead,
    Replaying,
    Replayed,
    Discarded,
}

impl From<StateFlag> for LetterState {
    fn from(flag: StateFlag) -> Self {
        match flag {
            StateFlag::Dead => Self::Dead,
            StateFlag::Replaying => Self::Replaying,
            StateFlag::Replayed => Self::Replayed,
            StateFlag::Discarded => Self::Discarded,
        }
    }
}

/// A reason that can be put on record, known before anything is looked at or asked.
fn parse_reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    match text.len() {
        bytes if bytes > REASON_BYTES_MAX => Err(format!(
            "it has {bytes} bytes, more than the {REASON_BYTES_MAX} allowed"
        )),
        _ => Ok(text.to_owned()),
    }
}
