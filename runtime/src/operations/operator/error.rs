use std::error::Error;
use std::fmt;

use crate::store::{LetterId, LetterState, RunId, RunState, StoreError, StoreErrorKind};

/// Why an operator's action did not happen. Whatever the reason, nothing was changed, except that a
/// commit whose connection broke ([`StoreErrorKind::Unavailable`]) has an unknown outcome.
#[derive(Debug)]
#[non_exhaustive]
pub enum OperatorError {
    /// What was asked is not allowed: which field, and what is wrong with it.
    Argument {
        /// The field, in the words of the documentation.
        field: &'static str,
        /// What is wrong with it, and the limit.
        problem: String,
    },
    /// There is no dead letter of this number (any more).
    NoSuchLetter(LetterId),
    /// There is no replay run of this number.
    NoSuchRun(RunId),
    /// The selection holds no dead letter.
    NothingSelected,
    /// The letter is not in a state in which this can be done.
    LetterState {
        /// Which letter.
        letter: LetterId,
        /// Its state.
        state: LetterState,
        /// What it would have to be.
        needed: &'static str,
    },
    /// A running process is at the letter's message: it will say what becomes of it.
    AtIt(LetterId),
    /// The run is not in a state in which this can be done.
    RunState {
        /// Which run.
        run: RunId,
        /// Its state.
        state: RunState,
        /// What it would have to be.
        needed: &'static str,
    },
    /// Somebody else has edited the letter meanwhile.
    Edited {
        /// Which letter.
        letter: LetterId,
        /// The revision that the edit was made from.
        base: u32,
        /// The current revision.
        current: u32,
    },
    /// The letter's message cannot be put back, or not like this.
    Refused {
        /// Which letter.
        letter: LetterId,
        /// Why.
        reason: String,
    },
    /// The database did not do it.
    Store(StoreError),
}

/// The nature of an [`OperatorError`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperatorErrorKind {
    /// What was asked is not allowed.
    Argument,
    /// There is nothing of this number, or in this selection.
    NotFound,
    /// It is there, in a state in which this cannot be done; somebody else may have been faster.
    State,
    /// The message itself stands in the way.
    Refused,
    /// The database did not do it.
    Store,
}

impl OperatorError {
    pub(super) fn argument(field: &'static str, problem: impl Into<String>) -> Self {
        Self::Argument {
            field,
            problem: problem.into(),
        }
    }

    /// The error's nature.
    #[must_use]
    pub fn kind(&self) -> OperatorErrorKind {
        match self {
            Self::Argument { .. } => OperatorErrorKind::Argument,
            Self::NoSuchLetter(_) | Self::NoSuchRun(_) | Self::NothingSelected => {
                OperatorErrorKind::NotFound
            }
            Self::LetterState { .. }
            | Self::AtIt(_)
            | Self::RunState { .. }
            | Self::Edited { .. } => OperatorErrorKind::State,
            Self::Refused { .. } => OperatorErrorKind::Refused,
            Self::Store(_) => OperatorErrorKind::Store,
        }
    }

    /// Whether the same again can succeed without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_transient())
    }

    /// Whether another transaction was in the way, and nothing was changed.
    pub(super) fn is_contention(&self) -> bool {
        matches!(self, Self::Store(error) if error.kind() == StoreErrorKind::Contention)
    }
}

impl fmt::Display for OperatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Argument { field, problem } => write!(f, "{field}: {problem}"),
            Self::NoSuchLetter(letter) => write!(f, "there is no dead letter {letter}"),
            Self::NoSuchRun(run) => write!(f, "there is no replay run {run}"),
            Self::NothingSelected => f.write_str("no dead letter is in the selection"),
            Self::LetterState {
                letter,
                state,
                needed,
            } => write!(
                f,
                "letter {letter} is {}; it would have to be {needed}",
                state.as_str()
            ),
            Self::AtIt(letter) => write!(
                f,
                "a running process is at letter {letter}; it will say what becomes of it"
            ),
            Self::RunState { run, state, needed } => write!(
                f,
                "replay run {run} is {}; it would have to be {needed}",
                state.as_str()
            ),
            Self::Edited {
                letter,
                base,
                current,
            } => write!(
                f,
                "letter {letter} is at revision {current} meanwhile; the edit was made from \
                 revision {base}"
            ),
            Self::Refused { letter, reason } => {
                write!(f, "letter {letter} cannot be put back: {reason}")
            }
            Self::Store(_) => f.write_str("the database did not do it"),
        }
    }
}

impl Error for OperatorError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            _ => None,
        }
    }
}

impl From<StoreError> for OperatorError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
