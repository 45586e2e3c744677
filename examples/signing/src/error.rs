//! Why a run ended without a ledger.

use std::error::Error;
use std::fmt;

use posta::Database;
use posta::broker::BrokerError;
use posta::operations::{StartError, TransactionError};
use posta::outbox::EnqueueError;
use posta::store::StoreErrorKind;

/// Why a run ended without a ledger.
#[derive(Debug)]
pub(crate) enum JobError {
    /// A flag does not fit the others, or the database: the user's to change.
    Usage(String),
    /// The broker's URL.
    Broker(BrokerError),
    /// Posta did not start.
    Start(StartError),
    /// A transaction did not commit.
    Transaction(TransactionError),
    /// A statement failed.
    Statement(diesel::result::Error),
    /// A message was refused.
    Enqueue(EnqueueError),
    /// The webhooks service, or what is sent to it.
    Webhooks(anyhow::Error),
    /// This machine: processes, files.
    System(std::io::Error),
    /// Nothing moved for too long: what is where.
    Stuck(String),
    /// A transaction that undid itself, on purpose.
    Undone,
    /// Ctrl-C or SIGTERM.
    Interrupted,
}

impl JobError {
    /// Whether the same step again can succeed.
    pub(crate) fn is_transient<D: Database>(&self) -> bool {
        match self {
            Self::Transaction(error) => error.is_transient(),
            Self::Enqueue(error) => error.is_transient(),
            Self::Statement(error) => {
                matches!(
                    D::classify(error),
                    StoreErrorKind::Unavailable | StoreErrorKind::Contention
                )
            }
            _ => false,
        }
    }

    /// Whether another transaction was in the way: daily life, not an outage.
    pub(crate) fn is_contention<D: Database>(&self) -> bool {
        let kind = match self {
            Self::Transaction(TransactionError::Store(error) | TransactionError::Commit(error)) => {
                error.kind()
            }
            Self::Enqueue(EnqueueError::Store(error)) => error.kind(),
            Self::Statement(error) => D::classify(error),
            _ => return false,
        };
        kind == StoreErrorKind::Contention
    }

    /// The error and what is behind it, in one line.
    pub(crate) fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            let part = error.to_string();
            if !text.ends_with(&part) {
                text = format!("{text}: {part}");
            }
            source = error.source();
        }
        text
    }

    /// The process's exit code: 2 for what the user has to change, 130 as a shell has it after
    /// Ctrl-C, 1 for the rest.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Broker(_) => 2,
            Self::Start(StartError::Configuration(_)) => 2,
            Self::Start(StartError::Store(error)) if error.kind() == StoreErrorKind::Rejected => 2,
            Self::Interrupted => 130,
            _ => 1,
        }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text) | Self::Stuck(text) => f.write_str(text),
            Self::Broker(error) => error.fmt(f),
            Self::Start(error) => error.fmt(f),
            Self::Transaction(error) => error.fmt(f),
            Self::Statement(_) => f.write_str("a statement failed"),
            Self::Enqueue(error) => error.fmt(f),
            Self::Webhooks(error) => error.fmt(f),
            Self::System(_) => f.write_str("a process or a file could not be used"),
            Self::Undone => f.write_str("a transaction undid itself"),
            Self::Interrupted => {
                f.write_str("interrupted; with --database, the same command goes on")
            }
        }
    }
}

impl Error for JobError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Usage(_) | Self::Stuck(_) | Self::Undone | Self::Interrupted => None,
            Self::Broker(error) => error.source(),
            Self::Start(error) => error.source(),
            Self::Transaction(error) => error.source(),
            Self::Statement(error) => Some(error),
            Self::Enqueue(error) => error.source(),
            Self::Webhooks(error) => error.source(),
            Self::System(error) => Some(error),
        }
    }
}

impl From<BrokerError> for JobError {
    fn from(error: BrokerError) -> Self {
        Self::Broker(error)
    }
}

impl From<StartError> for JobError {
    fn from(error: StartError) -> Self {
        Self::Start(error)
    }
}

impl From<TransactionError> for JobError {
    fn from(error: TransactionError) -> Self {
        Self::Transaction(error)
    }
}

impl From<diesel::result::Error> for JobError {
    fn from(error: diesel::result::Error) -> Self {
        Self::Statement(error)
    }
}

impl From<EnqueueError> for JobError {
    fn from(error: EnqueueError) -> Self {
        Self::Enqueue(error)
    }
}

impl From<std::io::Error> for JobError {
    fn from(error: std::io::Error) -> Self {
        Self::System(error)
    }
}
