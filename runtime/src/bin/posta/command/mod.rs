//! One file per command.

mod edit;
mod end;
mod layout;
mod letters;
mod migrate;
mod record;
mod redispatch;
mod replay;
mod runs;
mod status;

use posta::operations::Operator;
use posta::store::Database;

pub(crate) use self::migrate::migrate;
use crate::exit::Failed;
use crate::flags::{Command, DeadLetters, Deed, Flags, LayoutCommand, ReplayRuns};

/// Who looks: nothing is written down of it.
const READER: &str = "posta";

/// Runs a command on a store whose tables are up to date; returns what to print.
pub(crate) async fn run<D: Database>(store: D::Store, flags: &Flags) -> Result<String, Failed> {
    let json = flags.place.json;
    let operator = Operator::<D>::new(store, who(&flags.command)?)?;
    match &flags.command {
        Command::Status => status::status(&operator, json).await,
        // It needs no tables: it was run before.
        Command::Migrate(_) => Ok(String::new()),
        Command::DeadLetters(letters) => match letters {
            DeadLetters::List(flags) => letters::list(&operator, flags, json).await,
            DeadLetters::Groups(flags) => letters::groups(&operator, flags, json).await,
            DeadLetters::Show(flags) => letters::show(&operator, flags, json).await,
            DeadLetters::Replay(flags) => replay::replay(&operator, flags, json).await,
            DeadLetters::Edit(flags) => edit::edit(&operator, flags, json).await,
            DeadLetters::Skip(flags) => end::end(&operator, end::End::Skip, flags, json).await,
            DeadLetters::Discard(flags) => {
                end::end(&operator, end::End::Discard, flags, json).await
            }
            DeadLetters::Restore(flags) => {
                end::end(&operator, end::End::Restore, flags, json).await
            }
            DeadLetters::Recall(flags) => end::end(&operator, end::End::Recall, flags, json).await,
        },
        Command::ReplayRuns(runs) => match runs {
            ReplayRuns::List { limit } => runs::list(&operator, *limit, json).await,
            ReplayRuns::Show { run } => runs::show(&operator, *run, json).await,
            ReplayRuns::Pause(flags) => {
                runs::steer(&operator, runs::Steer::Pause, flags, json).await
            }
            ReplayRuns::Resume(flags) => {
                runs::steer(&operator, runs::Steer::Resume, flags, json).await
            }
            ReplayRuns::Cancel(flags) => {
                runs::steer(&operator, runs::Steer::Cancel, flags, json).await
            }
        },
        Command::Redispatch(flags) => redispatch::redispatch(&operator, flags, json).await,
        Command::Layout(LayoutCommand::Bound(flags)) => layout::bound(&operator, flags, json).await,
        Command::Record(flags) => record::record(&operator, flags, json).await,
    }
}

/// What is said on record of who does it.
fn who(command: &Command) -> Result<String, Failed> {
    let Some(deed) = deed(command) else {
        return Ok(READER.to_owned());
    };
    let who = deed.who.clone().or_else(|| std::env::var("USER").ok());
    who.filter(|who| !who.trim().is_empty())
        .ok_or_else(|| Failed::Usage("who does it? Give --who NAME or set USER".to_owned()))
}

/// What a command that changes something needs.
fn deed(command: &Command) -> Option<&Deed> {
    match command {
        Command::Status | Command::Migrate(_) | Command::Record(_) => None,
        Command::DeadLetters(letters) => match letters {
            DeadLetters::List(_) | DeadLetters::Groups(_) | DeadLetters::Show(_) => None,
            DeadLetters::Replay(flags) => Some(&flags.deed),
            DeadLetters::Edit(flags) => Some(&flags.deed),
            DeadLetters::Skip(flags)
            | DeadLetters::Discard(flags)
            | DeadLetters::Restore(flags)
            | DeadLetters::Recall(flags) => Some(&flags.deed),
        },
        Command::ReplayRuns(runs) => match runs {
            ReplayRuns::List { .. } | ReplayRuns::Show { .. } => None,
            ReplayRuns::Pause(flags) | ReplayRuns::Resume(flags) | ReplayRuns::Cancel(flags) => {
                Some(&flags.deed)
            }
        },
        Command::Redispatch(flags) => Some(&flags.deed),
        Command::Layout(LayoutCommand::Bound(flags)) => Some(&flags.deed),
    }
}
