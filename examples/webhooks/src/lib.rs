//! A service that takes GitHub's webhook deliveries and hands each to two consumers, once and in
//! order.
//!
//! ```text
//! POST /webhooks ─► one transaction: deliveries + outbox ─► broker ─┬─► archive     every body, byte for byte
//!                                                                   └─► statistics  per repository: count, last event, chain
//! ```
//!
//! # One source, two databases
//!
//! diesel fixes a connection's backend at compile time, so a service names its database in one
//! place (`type Db = posta::Sqlite;`) and is otherwise written for that type: no generic parameter,
//! no bound, diesel's errors stay readable. Most services have one database and stop there. This
//! one runs on either, chosen by a URL when it starts, so it must be compiled twice. It is, from
//! one source, without a macro: a folder of modules is mounted in two places.
//!
//! ```text
//! src/sqlite.rs      pub type Db = posta::Sqlite;      #[path = "service/mod.rs"] mod service;
//! src/postgres.rs    pub type Db = posta::Postgres;    #[path = "service/mod.rs"] mod service;
//! src/service/       use super::Db;                    // everything that touches the database
//! src/*.rs           everything else, compiled once
//! ```
//!
//! The recipe, for those who copy it:
//!
//! 1. Write `src/service/` as if there were one database, with `use super::Db;` at the top of its
//!    `mod.rs`. `derive(Message)` with a handler and `derive(Consumer)` look for a type of that
//!    name too, so they need nothing more.
//! 2. Give each database a file of a few lines: the alias, what truly differs (here the DDL), and
//!    the `#[path]` mount. `#[path]` in a file `src/x.rs` counts from `src/`; in an inline module
//!    it would count from a folder of that module's name.
//! 3. Keep messages, configuration and pure functions outside `service/`: their types are then the
//!    same on both sides.
//! 4. Where the program chooses, match once: [`Running::start`] is that place.
//!
//! clippy asks about a file that is mounted twice (`duplicate_mod`); here it is meant, and the two
//! mounts say so.

mod chain;
mod delivery;
pub mod message;
mod options;
pub mod postgres;
mod report;
mod running;
mod sender;
mod signature;
pub mod sqlite;

pub use chain::{Chain, Tally, expected};
pub use delivery::Delivery;
pub use message::WebhookReceived;
pub use options::{BODY_BYTES_MAX, Options};
pub use report::Report;
pub use running::{Running, verify};
pub use sender::{Answers, Sender};
pub use signature::{EmptySecret, Secrets};
