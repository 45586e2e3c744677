//! The service and its main job on SQLite: one file, nothing to install.

/// The one line that differs for a service.
pub(crate) type Db = posta::Sqlite;

/// The tables.
const SCHEMA: &str = include_str!("schema/sqlite.sql");

/// What stands before the names of Posta's tables.
const POSTA: &str = "posta_";

/// The outbox's row of a copy's message, if it is still there.
const SAME_MESSAGE: &str = "o.message_id = unhex(replace(c.message_id, '-', ''))";

/// SQLite lets one transaction write at a time; more signers would only wait for each other.
const SIGNERS: usize = 1;

#[allow(clippy::duplicate_mod, reason = "one source for both databases")]
#[path = "job/mod.rs"]
pub(crate) mod job;
#[allow(clippy::duplicate_mod, reason = "one source for both databases")]
#[path = "service.rs"]
mod service;
