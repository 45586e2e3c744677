//! What Posta keeps in the application's database, and what it asks of it.
//!
//! One trait per noun, all implemented by one type per database ([`PostgresStore`],
//! [`SqliteStore`]):
//!
//! | trait | table | who calls it |
//! |---|---|---|
//! | [`OutboxStore`] | `outbox`, `dispatched` | enqueueing code, the dispatcher |
//! | [`QueueStore`] | `queue`, `subscription` | the database broker |
//! | [`InboxStore`] | `inbox` | the partition actor |
//! | [`RetryStore`] | `retry` | the partition actor |
//! | [`DeadLetterStore`] | `dead_letter`, `dead_letter_revision` | the dispatcher, the partition actor, operators |
//! | [`ScheduleStore`] | `scheduled` | the dispatcher |
//! | [`ReplayStore`] | `replay_run`, `replay_item` | operators, the replayer |
//! | [`RedispatchStore`] | `dispatched` | operators |
//! | [`RecordStore`] | `operator_action`, `handled_type` | operators |
//! | [`LeaseStore`] | `lease`, `member` | the lease keeper |
//! | [`LayoutStore`] | `layout`, `layout_wish` | the lease keeper, the partition actor, the mover |
//! | [`MigrationStore`] | `migration` | `migrate`, and the check at start |
//!
//! Every method works on a connection on which the caller has begun a transaction
//! ([`Store::begin`]); none begins or commits one itself. So one reader sees which steps are atomic
//! together, and the store works behind a pooler in transaction mode. Due times, leases and ages
//! are computed and compared by the database's clock.

mod database;
mod dead_letter;
mod error;
mod inbox;
mod layout;
mod lease;
mod migration;
mod outbox;
#[cfg(feature = "postgres")]
pub mod postgres;
mod queue;
mod record;
mod redispatch;
mod replay;
mod retry;
mod scheduled;
mod session;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod tables;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) mod text;
mod tx;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod walk;

pub use database::{Connect, ConnectionOf, Database, DatabasePool, PooledConnection, Store};
pub use dead_letter::{
    DeadLetter, DeadLetterStore, LetterChange, LetterFilter, LetterGroup, LetterId, LetterState,
    NewDeadLetter, NewRevision, Origin, Revision, Successor,
};
pub use error::{StoreError, StoreErrorKind};
pub use inbox::{Admission, InboxStore};
pub use layout::{Attendance, Generation, Layout, LayoutStep, LayoutStore, Wish};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use lease::partitions_prefix;
pub use lease::{Fence, Grant, LeaseStore, MemberId, Resource};
pub use migration::{AppliedMigration, MigrationStore};
pub use outbox::{Backlog, FailedRow, OutboxRow, OutboxStore, RowId};
#[cfg(feature = "postgres")]
pub use postgres::{Postgres, PostgresStore};
pub use queue::{QueueRow, QueueStore};
pub use record::{Action, HandledType, NewAction, RecordStore};
pub use redispatch::{RedispatchFilter, RedispatchPreview, RedispatchStep, RedispatchStore};
pub use replay::{NewReplayRun, ReplayRun, ReplayStore, RunCounts, RunId, RunState};
pub use retry::{Claim, HeldRow, NewHold, Postponement, Recall, RetryStore};
pub use scheduled::{Due, NewScheduled, ScheduleStore};
pub use session::Session;
#[cfg(feature = "sqlite")]
pub use sqlite::{Sqlite, SqliteStore};
pub use tables::{Tables, TablesError};
pub use tx::Tx;
