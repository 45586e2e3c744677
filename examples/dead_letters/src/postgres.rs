//! The bank on PostgreSQL.

/// The one line that differs.
pub(crate) type Db = posta::Postgres;

/// What stands before the name of a table that is made. PostgreSQL looks into the role's own schema
/// first, and for a role called `posta` that would be Posta's.
const AT: &str = "public.";

/// What keeps two processes apart that make the tables at once: IF NOT EXISTS alone does not.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtext('dead_letters.tables'));";

// One source for both databases; the webhooks example's lib.rs explains the recipe.
#[path = "bank/mod.rs"]
#[allow(clippy::duplicate_mod, reason = "one source for both databases")]
mod bank;

pub(crate) use bank::*;
