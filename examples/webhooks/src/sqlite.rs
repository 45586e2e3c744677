//! The service on SQLite: one file, nothing to install.

/// The one line that differs.
pub type Db = posta::Sqlite;

/// The service's own tables. The archive has no unique key on purpose: if anything were handled
/// twice, it would show.
const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS deliveries (
        delivery   TEXT PRIMARY KEY,
        event      TEXT NOT NULL,
        repository TEXT
    );
    CREATE TABLE IF NOT EXISTS archive (
        delivery   TEXT NOT NULL,
        event      TEXT NOT NULL,
        signature  TEXT NOT NULL,
        body       BLOB NOT NULL
    );
    CREATE INDEX IF NOT EXISTS archive_delivery ON archive (delivery);
    CREATE TABLE IF NOT EXISTS statistics (
        repository TEXT PRIMARY KEY,
        deliveries BIGINT NOT NULL,
        last_event TEXT NOT NULL,
        chain      BLOB NOT NULL
    );
";

#[path = "service/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "one source for both databases")]
mod service;

pub use service::*;
