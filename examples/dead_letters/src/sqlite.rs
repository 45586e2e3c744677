//! The bank on SQLite.

/// The one line that differs.
pub(crate) type Db = posta::Sqlite;

/// What stands before the name of a table that is made.
const AT: &str = "";

/// What keeps two processes apart that make the tables at once: here the transaction itself.
const LOCK: &str = "";

// One source for both databases; the webhooks example's lib.rs explains the recipe.
#[path = "bank/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "one source for both databases")]
mod bank;

pub(crate) use bank::*;
