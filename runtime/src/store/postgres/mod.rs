//! PostgreSQL.
//!
//! [`PostgresStore`] is a pool of diesel-async connections and Posta's statements for one schema;
//! [`Postgres`] is the type that an application names. One file a trait, each with its SQL at the
//! top, or in `texts` beside it where there is much: a constant with the reason beside it.
//!
//! - **Statements** are texts that never vary: rows are bound as arrays, so each is prepared once
//!   for a connection.
//! - **Transactions** begin READ COMMITTED, in one round trip that also finds out whether the
//!   connection is alive and whether the server takes writes; a pooled connection that fails here
//!   is replaced. A transaction that is dropped takes its connection with it.
//! - **Time** is `statement_timestamp()`: one instant for a statement, a later one for the next.
//! - **Poolers** in transaction mode (PgBouncer) work with
//!   [`crate::store::Connect::transaction_pooler`]: every statement runs within an explicit
//!   transaction, is prepared and closed there, and nothing listens.
//! - **TLS** is rustls with ring, by `sslmode` and `sslrootcert` in the URL, with libpq's meanings.
//!
//! diesel hands most SQLSTATEs on as a message only; the one file that makes something of them is
//! `classify`.

mod classify;
mod columns;
mod connect;
mod database;
mod dead_letter;
mod duration;
pub(crate) mod enqueue;
mod inbox;
mod layout;
mod lease;
mod listen;
mod migration;
mod outbox;
mod queue;
mod recall;
mod record;
mod redispatch;
mod replay;
mod retry;
pub(crate) mod scheduled;
mod statement;
mod store;
mod texts;
mod tls;
mod url;

#[cfg(feature = "postgres-blocking")]
pub(crate) use classify::refused;
pub use database::Postgres;
pub use store::PostgresStore;
use texts::Texts;
