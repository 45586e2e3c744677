//! The service and its main job on PostgreSQL.

/// The one line that differs for a service.
pub(crate) type Db = posta::Postgres;

/// The tables.
const SCHEMA: &str = include_str!("schema/postgres.sql");

/// What stands before the names of Posta's tables.
const POSTA: &str = "posta.";

/// The outbox's row of a copy's message, if it is still there.
const SAME_MESSAGE: &str = "o.message_id = c.message_id::uuid";

/// How many signings are under way at once.
const SIGNERS: usize = 8;

#[allow(clippy::duplicate_mod, reason = "one source for both databases")]
#[path = "job/mod.rs"]
pub(crate) mod job;
#[allow(clippy::duplicate_mod, reason = "one source for both databases")]
#[path = "service.rs"]
mod service;
