use std::error::Error;
use std::fmt;

/// Why the database did not do what it was asked. Says whether trying again can help.
#[derive(Debug)]
pub struct StoreError {
    operation: &'static str,
    kind: StoreErrorKind,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The nature of a database failure. Only [`StoreErrorKind::Rejected`] and
/// [`StoreErrorKind::Corrupt`] can be the fault of what was asked; the others are nobody's attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The database cannot be reached, went away, shuts down, or is read-only after a failover.
    Unavailable,
    /// Another transaction was in the way (serialisation failure, deadlock, busy file); the same
    /// again will do.
    Contention,
    /// The tables are missing or of another version than this code: run the migrations.
    Schema,
    /// The database refused the statement: a constraint, a type, a right.
    Rejected,
    /// A row breaks what Posta itself guarantees of its tables.
    Corrupt,
}

impl StoreError {
    /// A failure of an operation, named in the infinitive (`settle dispatched rows`).
    pub fn new(
        operation: &'static str,
        kind: StoreErrorKind,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self {
            operation,
            kind,
            source: Some(source.into()),
        }
    }

    /// What was attempted.
    #[must_use]
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The failure's nature.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the same again can succeed without anybody changing anything.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::Unavailable | StoreErrorKind::Contention
        )
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.kind {
            StoreErrorKind::Unavailable => "the database is unavailable",
            StoreErrorKind::Contention => "another transaction was in the way",
            StoreErrorKind::Schema => "posta's tables are missing or of another version",
            StoreErrorKind::Rejected => "the database refused it",
            StoreErrorKind::Corrupt => "a row breaks an invariant of posta's tables",
        };
        write!(f, "could not {}: {why}", self.operation)
    }
}

impl Error for StoreError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}
