//! SQLite: one file, several connections, several processes.
//!
//! - **One writer at a time.** Every transaction is IMMEDIATE: one that begins by reading and then
//!   writes is refused at once when another has written meanwhile, whatever the busy timeout.
//!   Inside the process they queue up fairly before they ask (`turn.rs`); between processes
//!   SQLite's lock decides, and a lock that is not had in time is contention, nobody's failure.
//! - **Durable.** WAL with `synchronous = FULL`: what was committed survives a power cut
//!   (`connect.rs` argues).
//! - **Off the actors' threads.** An operation is one hop to a blocking thread, however many
//!   statements it runs there ([`BlockingThread`]).
//! - **Times** are whole microseconds by SQLite's clock, inside the statements; its resolution is a
//!   millisecond.
//! - **Slots.** SQLite has no SHA-256, so a row that plain SQL inserted has no slot until `pending`
//!   or `adopt` gives it one; until then nothing behind it is dispatched, whatever its key.
//! - **Text** is not always UTF-8 in SQLite. What plain SQL can have written is read as bytes and
//!   checked (`row.rs`).

mod behind;
mod claim;
mod classify;
mod connect;
mod connection;
mod database;
mod dead_letter;
pub(crate) mod enqueue;
mod held;
mod inbox;
mod layout;
mod lease;
mod letter_filter;
mod letter_group;
mod letter_row;
mod merge;
mod migration;
mod outbox;
mod pending;
mod place;
mod queue;
mod recall;
mod record;
mod redispatch;
mod release;
mod replay;
mod retry;
mod revision;
mod row;
pub(crate) mod scheduled;
mod statement;
mod store;
mod successor;
mod thread;
mod turn;
mod watch;

pub use connection::{Connection, Manager};
pub use database::Sqlite;
pub use store::SqliteStore;
pub use thread::BlockingThread;
