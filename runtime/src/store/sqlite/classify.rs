use diesel::result::{ConnectionError, DatabaseErrorKind, Error};

use crate::store::{StoreError, StoreErrorKind};

/// The last parts of the names of Posta's tables: an error that misses one of them is about the
/// migrations.
const TABLES: [&str; 16] = [
    "_outbox",
    "_dispatched",
    "_inbox",
    "_retry",
    "_dead_letter",
    "_dead_letter_revision",
    "_scheduled",
    "_replay_run",
    "_replay_item",
    "_operator_action",
    "_handled_type",
    "_lease",
    "_member",
    "_subscription",
    "_queue",
    "_migration",
];

/// The nature of a diesel error on SQLite.
///
/// diesel keeps SQLite's message and drops its code, except for five constraints; the messages are
/// those of `sqlite3ErrStr` and have not changed since SQLite 3.7.
pub(super) fn classify(error: &Error) -> StoreErrorKind {
    match error {
        Error::DatabaseError(kind, information) => of_database(kind, information.message()),
        // The commit's own error decides; the rollback after it ended the transaction or broke the
        // connection.
        Error::RollbackErrorOnCommit { commit_error, .. } => classify(commit_error),
        // A value that this code or the table's checks do not allow.
        Error::DeserializationError(_) => StoreErrorKind::Corrupt,
        // The connection is in no state to be used: it is discarded, and another one will do.
        Error::BrokenTransactionManager
        | Error::AlreadyInTransaction
        | Error::NotInTransaction
        | Error::RollbackTransaction => StoreErrorKind::Unavailable,
        Error::InvalidCString(_)
        | Error::NotFound
        | Error::QueryBuilderError(_)
        | Error::SerializationError(_) => StoreErrorKind::Rejected,
        // Kinds that diesel adds later: the statement's fault until known better.
        _ => StoreErrorKind::Rejected,
    }
}

fn of_database(kind: &DatabaseErrorKind, message: &str) -> StoreErrorKind {
    match kind {
        DatabaseErrorKind::UniqueViolation
        | DatabaseErrorKind::ForeignKeyViolation
        | DatabaseErrorKind::NotNullViolation
        | DatabaseErrorKind::CheckViolation
        | DatabaseErrorKind::RestrictViolation
        | DatabaseErrorKind::ExclusionViolation => StoreErrorKind::Rejected,
        DatabaseErrorKind::SerializationFailure => StoreErrorKind::Contention,
        // The blocking threads' runtime has ended; what panics there goes on panicking here.
        DatabaseErrorKind::UnableToSendCommand
        | DatabaseErrorKind::ClosedConnection
        | DatabaseErrorKind::ReadOnlyTransaction => StoreErrorKind::Unavailable,
        _ => of_message(message),
    }
}

/// Every result code of SQLite that is not a constraint, by its message; what is left is
/// SQLITE_ERROR, the statement's fault.
fn of_message(message: &str) -> StoreErrorKind {
    let starts = |heads: &[&str]| heads.iter().any(|head| message.starts_with(head));
    if starts(&[
        "database is locked",
        "database table is locked",
        "database schema is locked",
    ]) {
        // SQLITE_BUSY, SQLITE_LOCKED.
        return StoreErrorKind::Contention;
    }
    if starts(&["database schema has changed"]) {
        // SQLITE_SCHEMA: prepared again at the next call.
        return StoreErrorKind::Contention;
    }
    if starts(&[
        "unable to open database file", // SQLITE_CANTOPEN
        "disk I/O error",               // SQLITE_IOERR
        "database or disk is full",     // SQLITE_FULL
        "attempt to write a readonly database",
        "locking protocol", // SQLITE_PROTOCOL
        "out of memory",    // SQLITE_NOMEM
        "interrupted",      // SQLITE_INTERRUPT
        "access permission denied",
        "large file support is disabled",
        "database disk image is malformed", // SQLITE_CORRUPT: the operator's, no message's
        "file is not a database",
        "bad parameter or other API misuse",
    ]) {
        return StoreErrorKind::Unavailable;
    }
    if is_about_our_tables(message) {
        return StoreErrorKind::Schema;
    }
    StoreErrorKind::Rejected
}

/// `no such table: posta_outbox`, `table posta_outbox has no column named slot`. A missing column
/// in a query names no table, so it counts as the statement's fault.
fn is_about_our_tables(message: &str) -> bool {
    let missing = message.strip_prefix("no such table: ");
    let other = message
        .strip_prefix("table ")
        .and_then(|rest| rest.split_once(" has no column named "))
        .map(|(table, _)| table);
    missing
        .or(other)
        .is_some_and(|table| TABLES.iter().any(|name| table.ends_with(name)))
}

/// A failure of an operation that diesel reports.
pub(super) fn failed(operation: &'static str, error: Error) -> StoreError {
    StoreError::new(operation, classify(&error), error)
}

/// A failure to open the file, with what is known of why.
pub(super) fn not_opened(error: ConnectionError) -> StoreError {
    let kind = match &error {
        ConnectionError::CouldntSetupConfiguration(error) => classify(error),
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new("open the database", kind, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_sqlite_say_whose_fault_it_was() {
        for (message, kind) in [
            ("database is locked", StoreErrorKind::Contention),
            ("unable to open database file", StoreErrorKind::Unavailable),
            ("database or disk is full", StoreErrorKind::Unavailable),
            ("no such table: posta_outbox", StoreErrorKind::Schema),
            ("no such table: main.p_dead_letter", StoreErrorKind::Schema),
            (
                "table posta_outbox has no column named slot",
                StoreErrorKind::Schema,
            ),
            ("no such table: notifications", StoreErrorKind::Rejected),
            ("near \"SELEC\": syntax error", StoreErrorKind::Rejected),
        ] {
            assert_eq!(of_message(message), kind, "{message}");
        }
    }
}
