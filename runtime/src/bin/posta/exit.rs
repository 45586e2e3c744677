use std::error::Error;

use posta::operations::operator::{OperatorError, OperatorErrorKind};
use posta::store::{StoreError, StoreErrorKind};

/// The exit codes, as `--help` and the documentation have them.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed: the letter or run is in another state, the message is not valid, the database refused
  2  the command line is wrong
  3  not confirmed: nothing was changed; repeat it with --yes
  4  nothing matched, or there is no such letter or run
  5  the database cannot be reached
  128 + n  ended by the signal n (130: Ctrl-C); the transaction under way was rolled back

Environment:
  POSTA_DATABASE  the database, if --database is not given
  USER            who acts, if --who is not given
  VISUAL, EDITOR  what `dead-letters edit` opens in a terminal";

/// Why a command did not do what it was asked.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The command line is wrong in a way that only the command itself can tell.
    Usage(String),
    /// A change was not confirmed.
    NotConfirmed,
    /// The editor was left without a change.
    Unchanged,
    /// A signal of this number came.
    Interrupted(u8),
    /// Nothing matched.
    Nothing(&'static str),
    /// The database's file is not there; only `migrate` makes one.
    #[cfg(feature = "sqlite")]
    NoFile(String),
    /// The database did not do it.
    Store(StoreError),
    /// The action was refused.
    Operator(OperatorError),
    /// Something on this machine failed, while it tried to do this.
    Io(&'static str, std::io::Error),
    /// Anything else.
    Other(String),
}

impl Failed {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::NotConfirmed | Self::Unchanged => 3,
            Self::Interrupted(signal) => 128 + signal,
            Self::Nothing(_) => 4,
            #[cfg(feature = "sqlite")]
            Self::NoFile(_) => 5,
            Self::Store(error) => of_store(error),
            Self::Operator(OperatorError::Store(error)) => of_store(error),
            Self::Operator(error) => match error.kind() {
                OperatorErrorKind::Argument => 2,
                OperatorErrorKind::NotFound => 4,
                _ => 1,
            },
            Self::Io(..) | Self::Other(_) => 1,
        }
    }

    /// The error with its sources, on one line. None of them holds a password: a store never
    /// repeats its URL.
    pub(crate) fn chain(&self) -> String {
        match self {
            Self::Usage(text) | Self::Other(text) => text.clone(),
            Self::NotConfirmed => {
                "not confirmed, so nothing was changed; repeat it with --yes".to_owned()
            }
            Self::Unchanged => "the payload was left as it is, so nothing was changed".to_owned(),
            Self::Interrupted(signal) => format!("interrupted by signal {signal}"),
            Self::Nothing(text) => (*text).to_owned(),
            #[cfg(feature = "sqlite")]
            Self::NoFile(file) => {
                format!("there is no database {file:?}; `posta migrate` makes one")
            }
            Self::Store(error) => chain(error),
            Self::Operator(error) => chain(error),
            Self::Io(what, error) => format!("could not {what}: {error}"),
        }
    }
}

fn of_store(error: &StoreError) -> u8 {
    match error.kind() {
        StoreErrorKind::Unavailable => 5,
        _ => 1,
    }
}

fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        if !text.ends_with(&part) {
            text = format!("{text}: {part}");
        }
        source = error.source();
    }
    if let Some(StoreErrorKind::Schema) = store_kind(error) {
        text.push_str("; `posta migrate` brings them up to date");
    }
    text
}

fn store_kind(error: &(dyn Error + 'static)) -> Option<StoreErrorKind> {
    let mut error = Some(error);
    while let Some(inner) = error {
        if let Some(store) = inner.downcast_ref::<StoreError>() {
            return Some(store.kind());
        }
        error = inner.source();
    }
    None
}

impl From<OperatorError> for Failed {
    fn from(error: OperatorError) -> Self {
        Self::Operator(error)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
