use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::consumer::ExtractError;
use crate::message::DecodeError;
use crate::supervision::Caught;
use crate::telemetry::ErrorType;

/// Why a handler did not handle a message; its transaction is rolled back.
///
/// Made from any error by `?`, it is transient: the message is tried again as its policy says
/// ([`crate::retry::RetryPolicy`]). A handler that knows more says so:
///
/// ```
/// use std::time::Duration;
/// use posta::Failure;
///
/// fn charge(status: u16) -> Result<(), Failure> {
///     match status {
///         200 => Ok(()),
///         404 => Err(Failure::permanent("no such customer")),
///         429 => Err(Failure::retry_after(Duration::from_secs(60), "too many requests")),
///         _ => Err(Failure::new(format!("the bank answers {status}"))),
///     }
/// }
/// # assert!(charge(404).is_err());
/// ```
pub struct Failure {
    nature: Nature,
    source: Box<dyn Error + Send + Sync>,
}

/// What a failure says of further tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Nature {
    /// The same again may do: tried again by the policy.
    #[default]
    Transient,
    /// No further try can help: a dead letter at once, of the reason `permanent`.
    Permanent,
    /// Not before this long, by the database's clock, and exactly then; it counts as a try, and the
    /// policy's number of tries still holds.
    RetryAfter(Duration),
    /// Somebody is to look at it: a dead letter at once, of the reason `dead_lettered`.
    DeadLetter,
}

impl Failure {
    /// A transient failure in the handler's own words.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(Nature::Transient, source)
    }

    /// A failure that no further try can help: the message becomes a dead letter at once.
    pub fn permanent(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(Nature::Permanent, source)
    }

    /// A failure after which the message is tried again when this time has passed, not earlier and
    /// without jitter; more than a year counts as a year.
    pub fn retry_after(delay: Duration, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(Nature::RetryAfter(delay), source)
    }

    /// Makes the message a dead letter at once, for an operator to look at.
    pub fn dead_letter(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::of(Nature::DeadLetter, source)
    }

    fn of(nature: Nature, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            nature,
            source: source.into(),
        }
    }

    /// What it says of further tries.
    #[must_use]
    pub fn nature(&self) -> Nature {
        self.nature
    }

    /// The error behind it.
    #[must_use]
    pub fn source(&self) -> &(dyn Error + Send + Sync + 'static) {
        self.source.as_ref()
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Failure")
            .field(&self.nature)
            .field(&self.source)
            .finish()
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
    /// The handler panicked.
    Panicked(Caught),
    /// The handler was not done after this long: its future was dropped where it stood.
    Deadline(Duration),
}

impl ErrorType for HandleError {
    fn error_type(&self) -> &'static str {
        match self {
            Self::Decode(_) => "undecodable",
            Self::Extract(_) => "argument_missing",
            Self::Failed(_) => "handler_failed",
            Self::Panicked(_) => "handler_panicked",
            Self::Deadline(_) => "handler_deadline",
        }
    }
}

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode(_) => f.write_str("the payload could not be decoded"),
            Self::Extract(_) => f.write_str("a handler's argument is missing"),
            Self::Failed(_) => f.write_str("the handler failed"),
            Self::Panicked(panic) => write!(f, "the handler panicked: {panic}"),
            Self::Deadline(deadline) => {
                write!(
                    f,
                    "the handler was not done within its deadline of {deadline:?}"
                )
            }
        }
    }
}

impl Error for HandleError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Decode(error) => error.source(),
            Self::Extract(error) => Some(error),
            Self::Failed(failure) => Some(failure.source.as_ref()),
            Self::Panicked(_) | Self::Deadline(_) => None,
        }
    }
}
