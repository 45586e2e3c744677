use std::error::Error;
use std::fmt;

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
    /// The database did not take the row; the transaction is as the database left it.
    Store(StoreError),
}

impl EnqueueError {
    /// Whether the same again can succeed without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Message { .. } => false,
            Self::Store(error) => error.is_transient(),
        }
    }
}

impl ErrorType for EnqueueError {
    fn error_type(&self) -> &'static str {
        match self {
            Self::Message { .. } => "message_refused",
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
            Self::Store(_) => f.write_str("the outbox did not take the message"),
        }
    }
}

impl Error for EnqueueError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Message { source, .. } => Some(source),
            Self::Store(source) => Some(source),
        }
    }
}

impl From<StoreError> for EnqueueError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
