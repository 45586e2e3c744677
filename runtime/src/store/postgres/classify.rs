//! The one file that knows what PostgreSQL's errors mean.

use std::error::Error as StdError;
use std::fmt;

use diesel::result::{DatabaseErrorKind, Error};
use diesel_async::{AnsiTransactionManager, AsyncPgConnection, TransactionManager};

use crate::store::{StoreError, StoreErrorKind};

/// Messages of errors that diesel hands on without their SQLSTATE. Each is the start of
/// PostgreSQL's primary message text, or a part of it between two names. A server that speaks
/// another language than English (`lc_messages`) is not understood: its errors of these kinds count
/// as refusals.
const MESSAGES: &[(&str, StoreErrorKind)] = {
    use StoreErrorKind::{Contention, Unavailable};
    &[
        // 40P01, 55P03
        ("deadlock detected", Contention),
        ("canceling statement due to lock timeout", Contention),
        ("could not obtain lock on", Contention),
        // 0A000: a migration changed a table under a prepared statement; the connection is replaced
        // and the same will do.
        ("cached plan must not change result type", Contention),
        // 57014 by somebody's hand
        ("canceling statement due to user request", Contention),
        // 57P01, 57P02, 57P05, 25P03, 25P04, 57014
        ("terminating connection", Unavailable),
        ("terminating idle", Unavailable),
        ("canceling statement due to statement timeout", Unavailable),
        (
            "canceling statement due to conflict with recovery",
            Unavailable,
        ),
        // 57P03
        ("the database system is", Unavailable),
        // 53300
        ("sorry, too many clients already", Unavailable),
        ("remaining connection slots are reserved", Unavailable),
        ("too many connections for", Unavailable),
        // 53100, 53200, 58030
        ("could not extend file", Unavailable),
        ("could not write", Unavailable),
        ("No space left on device", Unavailable),
        ("out of memory", Unavailable),
        ("out of shared memory", Unavailable),
        // 0A000 and 25006 as a standby says them where diesel does not know the code.
        ("cannot set transaction read-write mode", Unavailable),
        (READ_ONLY, Unavailable),
        // 08P01 of PgBouncer
        ("query_wait_timeout", Unavailable),
        ("server login failed", Unavailable),
        ("server conn crashed", Unavailable),
        ("server closed the connection unexpectedly", Unavailable),
        ("client_idle_timeout", Unavailable),
        ("idle transaction timeout", Unavailable),
        ("pgbouncer cannot connect to server", Unavailable),
        ("no more connections allowed", Unavailable),
        ("the database is shutting down", Unavailable),
    ]
};

/// What the check at the beginning of each transaction makes a read-only server say.
pub(super) const READ_ONLY: &str = "this server is read-only";

/// The nature of a diesel error, of whatever statement.
pub(super) fn classify(error: &Error) -> StoreErrorKind {
    match error {
        Error::DatabaseError(kind, information) => match kind {
            DatabaseErrorKind::SerializationFailure => StoreErrorKind::Contention,
            // A primary that has become a standby.
            DatabaseErrorKind::ReadOnlyTransaction => StoreErrorKind::Unavailable,
            // Broken or closed; also what diesel-async makes of every error that did not come from
            // the server.
            DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection => {
                StoreErrorKind::Unavailable
            }
            DatabaseErrorKind::UniqueViolation
            | DatabaseErrorKind::ForeignKeyViolation
            | DatabaseErrorKind::RestrictViolation
            | DatabaseErrorKind::NotNullViolation
            | DatabaseErrorKind::CheckViolation
            | DatabaseErrorKind::ExclusionViolation => StoreErrorKind::Rejected,
            // All other SQLSTATEs. What is not in the list is a statement that the server refuses
            // and would refuse again.
            _ => MESSAGES
                .iter()
                .find(|(message, _)| information.message().contains(message))
                .map_or(StoreErrorKind::Rejected, |(_, kind)| *kind),
        },
        // The connection's transaction state is unknown: it is thrown away, and another one will
        // do.
        Error::BrokenTransactionManager => StoreErrorKind::Unavailable,
        Error::RollbackErrorOnCommit { commit_error, .. } => classify(commit_error),
        // A row that is not as the statement says it must be.
        Error::DeserializationError(_) | Error::NotFound => StoreErrorKind::Corrupt,
        // The rest are refusals on this side (a value that has no SQL form, a transaction within a
        // transaction) or variants that this diesel does not make for PostgreSQL.
        _ => StoreErrorKind::Rejected,
    }
}

/// The nature of an error of one of Posta's own statements: here a missing table is one of Posta's.
fn classify_own(error: &Error) -> StoreErrorKind {
    let kind = classify(error);
    if kind == StoreErrorKind::Rejected && is_unknown_name(error) {
        return StoreErrorKind::Schema;
    }
    kind
}

/// 42P01, 42703, 42883, 3F000: a relation, column, function or schema that does not exist.
fn is_unknown_name(error: &Error) -> bool {
    let Some(message) = unknown_kind(error) else {
        return false;
    };
    ["relation ", "column ", "function ", "schema ", "type "]
        .iter()
        .any(|what| message.contains(what))
        && message.ends_with("does not exist")
}

/// 26000, 42P05: what a pooler in transaction mode makes of statements that are kept prepared.
fn is_lost_statement(error: &Error) -> bool {
    unknown_kind(error).is_some_and(|message| {
        message.starts_with("prepared statement ")
            && (message.ends_with("does not exist") || message.ends_with("already exists"))
    })
}

fn unknown_kind(error: &Error) -> Option<&str> {
    match error {
        Error::DatabaseError(kind, information)
            if !matches!(
                kind,
                DatabaseErrorKind::UnableToSendCommand | DatabaseErrorKind::ClosedConnection
            ) =>
        {
            Some(information.message())
        }
        _ => None,
    }
}

/// Whether the connection must not be used again, although it is open: its server has become
/// read-only, or its prepared statements are out of date.
pub(super) fn spoils_connection(error: &Error) -> bool {
    matches!(
        error,
        Error::DatabaseError(DatabaseErrorKind::ReadOnlyTransaction, _)
    ) || is_lost_statement(error)
        || unknown_kind(error).is_some_and(|message| message.starts_with("cached plan must not"))
}

/// The error of one of Posta's own statements; a connection that is spoiled is marked, so that its
/// pool replaces it.
pub(super) fn failed(
    connection: &mut AsyncPgConnection,
    operation: &'static str,
    error: Error,
) -> StoreError {
    if spoils_connection(&error) {
        <AnsiTransactionManager as TransactionManager<AsyncPgConnection>>::transaction_manager_status_mut(connection)
            .set_in_error();
    }
    refused(operation, error)
}

/// The error of one of Posta's own statements.
pub(crate) fn refused(operation: &'static str, error: Error) -> StoreError {
    let kind = classify_own(&error);
    let advice = if kind == StoreErrorKind::Schema {
        "run posta's migrations (`migrate`, or the printed SQL), or name the schema they are in"
    } else if is_lost_statement(&error) {
        "is there a pooler in transaction mode before the database? then say so (`transaction_pooler`)"
    } else {
        return StoreError::new(operation, kind, error);
    };
    StoreError::new(
        operation,
        kind,
        Advised {
            advice,
            source: error,
        },
    )
}

/// A database error and what to do about it.
#[derive(Debug)]
struct Advised {
    advice: &'static str,
    source: Error,
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.advice)
    }
}

impl StdError for Advised {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.source)
    }
}
