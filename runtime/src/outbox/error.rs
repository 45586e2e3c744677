use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::message::EnvelopeError;
use crate::store::StoreError;
use crate::telemetry::ErrorType;

/// Why a message was not enqueued.
#[derive(Debug)]
#[non_exhaustive]
pub enum EnqueueError {
    /// The message breaks a limit or has no encoding. No SQL was run: the transaction is usable,
    /// and the same message fails again.
    Message {
        /// The message type that was to be enqueued.
        message_type: String,
        /// What is wrong with it.
        source: EnvelopeError,
    },
    /// It is scheduled for a time that is not allowed. No SQL was run: the transaction is usable.
    Due {
        /// The message type that was to be scheduled.
        message_type: String,
        /// What is wrong with the time.
        source: DueError,
    },
    /// The database did not take the row; the transaction is as the database left it.
    Store(StoreError),
}

/// Why a message cannot be scheduled for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DueError {
    /// The delay is too long.
    #[error("its delay is {delay:?}, more than the {delay_max:?} allowed")]
    Delay {
        /// The delay.
        delay: Duration,
        /// The limit.
        delay_max: Duration,
    },
    /// The time is too late for a database to tell.
    #[error("it is to be due in the year {year}, after the year {year_max}")]
    Year {
        /// The year.
        year: i32,
        /// The last one.
        year_max: i32,
    },
}

impl EnqueueError {
    pub(super) fn due(message_type: &str, source: DueError) -> Self {
        Self::Due {
            message_type: message_type.to_owned(),
            source,
        }
    }

    /// Whether the same again can succeed without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Message { .. } | Self::Due { .. } => false,
            Self::Store(error) => error.is_transient(),
        }
    }
}

impl ErrorType for EnqueueError {
    fn error_type(&self) -> &'static str {
        match self {
            Self::Message { .. } | Self::Due { .. } => "message_refused",
            Self::Store(error) => error.error_type(),
        }
    }
}

impl fmt::Display for EnqueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { message_type, .. } => {
                write!(f, "message of type {message_type:?} was not enqueued")
            }
            Self::Due { message_type, .. } => {
                write!(f, "message of type {message_type:?} was not scheduled")
            }
            Self::Store(_) => f.write_str("the outbox did not take the message"),
        }
    }
}

impl Error for EnqueueError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Message { source, .. } => Some(source),
            Self::Due { source, .. } => Some(source),
            Self::Store(source) => Some(source),
        }
    }
}

impl From<StoreError> for EnqueueError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
