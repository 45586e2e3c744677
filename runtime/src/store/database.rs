use std::future::Future;
use std::time::Duration;

use diesel_async::{AsyncConnection, TransactionManager};

use super::{
    DeadLetterStore, InboxStore, LayoutStore, LeaseStore, MigrationStore, NewScheduled,
    OutboxStore, QueueStore, RecordStore, RedispatchStore, ReplayStore, RetryStore, ScheduleStore,
    Session, StoreError, StoreErrorKind, Tables,
};
use crate::message::{Envelope, MessageId};

type Manager<D> = <<D as Database>::Connection as AsyncConnection>::TransactionManager;

/// A pool of a database's connections; the application's own can be handed in.
pub type DatabasePool<D> = deadpool::managed::Pool<<D as Database>::Manager>;

/// A connection out of a [`DatabasePool`].
pub type PooledConnection<D> = deadpool::managed::Object<<D as Database>::Manager>;

/// A database that Posta runs on: the one type that a service names (`type Db = posta::Postgres;`).
///
/// Implemented by `Postgres` and `Sqlite`; sealed in effect, since it names a [`Store`] with
/// everything that Posta needs.
pub trait Database: Sized + Clone + Send + Sync + 'static {
    /// The diesel connection that handlers and [`super::Tx`] work on.
    type Connection: AsyncConnection + Send + 'static;
    /// Makes and recycles the pool's connections: diesel-async's own manager.
    type Manager: deadpool::managed::Manager<Type = Self::Connection> + Send + Sync + 'static;
    /// Posta's statements in this database's SQL.
    type Store: Store<Database = Self>;

    /// The database's name in logs and telemetry (`postgresql`, `sqlite`), as `db.system.name` has
    /// it.
    const NAME: &'static str;

    /// The statements that create Posta's tables, all versions in order, for those who run
    /// migrations by other means.
    fn migration_sql(tables: &Tables) -> String;

    /// Writes envelopes into the outbox on any connection, inside whatever transaction is open on
    /// it; all in one statement, in the order given, and nothing for none.
    ///
    /// # Errors
    /// When the database refuses or is gone. The envelopes' own limits were checked before.
    fn insert_outbox(
        connection: &mut Self::Connection,
        tables: &Tables,
        envelopes: &[Envelope],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Writes messages that are due later on any connection, inside whatever transaction is open on
    /// it; all in one statement, in the order given, and nothing for none.
    ///
    /// # Errors
    /// When the database refuses or is gone.
    fn insert_scheduled(
        connection: &mut Self::Connection,
        tables: &Tables,
        scheduled: &[NewScheduled],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Takes a scheduled message back, inside whatever transaction is open on the connection.
    /// `false` if there is none of this id any more: it is due and on its way, or was cancelled.
    ///
    /// # Errors
    /// When the database refuses or is gone.
    fn cancel_scheduled(
        connection: &mut Self::Connection,
        tables: &Tables,
        id: MessageId,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send;

    /// Commits the transaction that is open on a connection.
    ///
    /// # Errors
    /// When the database refuses; also when it would only roll back, since a statement has failed
    /// whose error nobody passed on.
    fn commit(
        connection: &mut Self::Connection,
    ) -> impl Future<Output = diesel::QueryResult<()>> + Send {
        async {
            // More than once where the application has left savepoints open: they are part of what
            // it did.
            while Manager::<Self>::transaction_manager_status_mut(connection)
                .transaction_depth()?
                .is_some()
            {
                Manager::<Self>::commit_transaction(connection).await?;
            }
            Ok(())
        }
    }

    /// The nature of a diesel error on this database: the one place that knows.
    fn classify(error: &diesel::result::Error) -> StoreErrorKind;

    /// Whether a connection must not be used again after this error, although it is open.
    fn spoils_connection(_error: &diesel::result::Error) -> bool {
        false
    }
}

/// How a store reaches its database.
#[derive(Clone, Debug)]
pub struct Connect {
    /// The names of Posta's tables.
    pub tables: Tables,
    /// Most connections in the pool that Posta makes.
    pub connections_max: usize,
    /// How long to wait for a free connection or a new one before the database counts as
    /// unavailable.
    pub timeout: Duration,
    /// Whether a pooler in transaction mode stands before the database: no statement is then kept
    /// prepared.
    pub transaction_pooler: bool,
}

/// Everything that Posta asks of a database, and transactions to ask it in.
pub trait Store:
    OutboxStore
    + QueueStore
    + InboxStore
    + RetryStore
    + DeadLetterStore
    + ScheduleStore
    + ReplayStore
    + RedispatchStore
    + RecordStore
    + LeaseStore
    + LayoutStore
    + MigrationStore
    + Clone
    + Send
    + Sync
    + 'static
{
    /// The database that this is a store of.
    type Database: Database<Store = Self>;

    /// Makes a store that connects to a URL on demand; reads nothing and runs no statement yet.
    ///
    /// # Errors
    /// When the URL is not one of this database's; the error names the part, never a password.
    fn connect(url: &str, connect: &Connect) -> Result<Self, StoreError>;

    /// Makes a store on the application's own pool.
    fn with_pool(pool: DatabasePool<Self::Database>, connect: &Connect) -> Self;

    /// The names of Posta's tables.
    fn tables(&self) -> &Tables;

    /// Begins a transaction: READ COMMITTED on PostgreSQL whatever its default, IMMEDIATE on
    /// SQLite.
    ///
    /// # Cancel safety
    /// Safe: a connection whose transaction did not begin wholly is discarded, not returned to the
    /// pool.
    ///
    /// # Errors
    /// `Unavailable` when there is no connection in time, `Contention` when SQLite's file stays
    /// locked.
    fn begin(&self) -> impl Future<Output = Result<Session<Self::Database>, StoreError>> + Send;

    /// Begins a transaction that only reads: as [`Store::begin`], but on SQLite it waits for no
    /// writer and lets none wait. What it saw may have changed when it is acted upon.
    ///
    /// # Cancel safety
    /// As [`Store::begin`].
    ///
    /// # Errors
    /// As [`Store::begin`].
    fn begin_read(
        &self,
    ) -> impl Future<Output = Result<Session<Self::Database>, StoreError>> + Send {
        self.begin()
    }

    /// Rolls back a transaction in which the application's own code failed: nobody here knows which
    /// statement failed, and why, so what may be wrong with the connection from then on is put right.
    ///
    /// # Cancel safety
    /// Safe: the connection is then discarded.
    fn undo(&self, session: Session<Self::Database>) -> impl Future<Output = ()> + Send {
        session.rollback()
    }

    /// Tells other processes that there may be something to dispatch or to consume. Coalesced by
    /// the caller, outside any transaction of the application, allowed to get lost: polling alone
    /// is enough.
    fn notify(&self) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Waits until another process may have called [`Store::notify`]; returns at once after a loss
    /// of the connection that might have hidden one. Never returns on a database without
    /// notifications.
    ///
    /// # Errors
    /// `Unavailable` when the listening connection cannot be made; wait before calling again.
    fn notified(&self) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// The connection type of a store's database.
pub type ConnectionOf<S> = <<S as Store>::Database as Database>::Connection;
