use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::outbox::EnqueueError;
use crate::store::StoreError;

/// Why the runtime did not start.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration breaks these rules: all of them, each with field, value and limit.
    Configuration(Vec<String>),
    /// The database cannot be reached, or its tables are not there.
    Store(StoreError),
    /// There is no actix system on this thread.
    NoActorSystem,
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Configuration(mistakes) => {
                write!(
                    f,
                    "the configuration is not usable: {}",
                    mistakes.join("; ")
                )
            }
            Self::Store(_) => f.write_str("the database is not ready"),
            Self::NoActorSystem => {
                f.write_str("there is no actix system on this thread: begin with `#[actix::main]`")
            }
        }
    }
}

impl Error for StartError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for StartError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Why a transaction was not committed, apart from what the application itself says.
#[derive(Debug)]
#[non_exhaustive]
pub enum TransactionError {
    /// It could not begin, or the enqueued messages could not be written: nothing was committed.
    Store(StoreError),
    /// The commit failed. If the error is of the kind `Unavailable` the outcome is unknown: the
    /// connection broke in the middle.
    Commit(StoreError),
    /// A message was refused: nothing was committed.
    Enqueue(EnqueueError),
}

impl TransactionError {
    /// Whether the same transaction again can succeed without anybody changing anything; for an
    /// unknown commit only if it is idempotent.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Store(error) | Self::Commit(error) => error.is_transient(),
            Self::Enqueue(error) => error.is_transient(),
        }
    }
}

impl fmt::Display for TransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Store(_) => "the transaction was not committed",
            Self::Commit(_) => "the commit failed",
            Self::Enqueue(_) => "the transaction was not committed since a message was refused",
        })
    }
}

impl Error for TransactionError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) | Self::Commit(error) => Some(error),
            Self::Enqueue(error) => Some(error),
        }
    }
}

/// The runtime did not end as it should; what was in flight was dropped and will be delivered
/// again.
#[derive(Debug)]
pub struct StopError {
    pub(crate) kind: StopErrorKind,
    pub(crate) grace: Duration,
    pub(crate) unfinished: Vec<String>,
    pub(crate) reason: Option<String>,
}

/// What was wrong with the end of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopErrorKind {
    /// The drain did not finish within its grace, and was aborted.
    Grace,
    /// A second signal aborted the drain.
    Aborted,
    /// It had failed past every budget ([`crate::supervision::PastBudget::Exit`]).
    Failed,
}

impl StopError {
    /// What was wrong.
    #[must_use]
    pub fn kind(&self) -> StopErrorKind {
        self.kind
    }

    /// The actors that had not finished.
    #[must_use]
    pub fn unfinished(&self) -> &[String] {
        &self.unfinished
    }
}

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            StopErrorKind::Grace => write!(
                f,
                "the drain did not finish within {:?} and was aborted",
                self.grace
            )?,
            StopErrorKind::Aborted => f.write_str("the drain was aborted by a second signal")?,
            StopErrorKind::Failed => write!(
                f,
                "the runtime has failed: {}",
                self.reason.as_deref().unwrap_or_default()
            )?,
        }
        match self.unfinished.is_empty() {
            true => Ok(()),
            false => write!(f, "; unfinished: {}", self.unfinished.join(", ")),
        }
    }
}

impl Error for StopError {}
