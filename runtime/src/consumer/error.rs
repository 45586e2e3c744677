use std::error::Error;
use std::fmt;

use crate::consumer::ExtractError;
use crate::message::DecodeError;
use crate::telemetry::ErrorType;

/// Why a handler did not handle a message. Made from any error by `?`; the transaction is rolled
/// back and the message tried again.
pub struct Failure {
    source: Box<dyn Error + Send + Sync>,
}

impl Failure {
    /// A failure in the handler's own words.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: source.into(),
        }
    }

    /// The error behind it.
    #[must_use]
    pub fn source(&self) -> &(dyn Error + Send + Sync + 'static) {
        self.source.as_ref()
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            source: error.into(),
        }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.source, f)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.source, f)
    }
}

/// What became of one call of a handler.
#[derive(Debug)]
#[non_exhaustive]
pub enum HandleError {
    /// The payload is no message of the type: permanent.
    Decode(DecodeError),
    /// The handler asks for state that the consumer does not have: a mistake in the program.
    Extract(ExtractError),
    /// The handler said no.
    Failed(Failure),
    /// The handler panicked, with this message.
    Panicked(String),
}

impl ErrorType for HandleError {
    fn error_type(&self) -> &'static str {
        match self {
            Self::Decode(_) => "undecodable",
            Self::Extract(_) => "argument_missing",
            Self::Failed(_) => "handler_failed",
            Self::Panicked(_) => "handler_panicked",
        }
    }
}

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode(_) => f.write_str("the payload could not be decoded"),
            Self::Extract(_) => f.write_str("a handler's argument is missing"),
            Self::Failed(_) => f.write_str("the handler failed"),
            Self::Panicked(message) => write!(f, "the handler panicked: {message}"),
        }
    }
}

impl Error for HandleError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Decode(error) => error.source(),
            Self::Extract(error) => Some(error),
            Self::Failed(failure) => Some(failure.source.as_ref()),
            Self::Panicked(_) => None,
        }
    }
}
