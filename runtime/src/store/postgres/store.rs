use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::{Object, Pool, PoolError};
use diesel::ConnectionError;
use diesel::connection::CacheSize;
use diesel_async::pooled_connection::PoolError as ManagerError;
use diesel_async::{
    AnsiTransactionManager, AsyncConnection, AsyncPgConnection, SimpleAsyncConnection as _,
};
use tokio::time::Instant;

use super::classify::classify;
use super::connect::{self, Manager};
use super::listen::Listener;
use super::url::Target;
use super::{Postgres, Texts};
use crate::store::walk::Walks;
use crate::store::{Connect, DatabasePool, Session, Store, StoreError, StoreErrorKind, Tables};

/// READ COMMITTED whatever the database's default: Posta's statements wait for each other's rows
/// and then want to see what was committed meanwhile.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED";

/// The same, in the same round trip with a look whether the server takes writes; this is how plain
/// SQL raises an error, see `classify::READ_ONLY`. (READ WRITE is not asked for: it would overrule
/// an administrator who has fenced a former primary by `default_transaction_read_only`.)
const BEGIN_CHECKED: &str = "\
BEGIN ISOLATION LEVEL READ COMMITTED; \
SELECT CAST(CASE pg_catalog.current_setting('transaction_read_only') WHEN 'off' THEN 'off' \
ELSE 'this server is read-only' END AS pg_catalog.bool)";

/// A connection is checked at its first use and at each of this many: the look costs as much as the
/// BEGIN. In between, Posta's own statements find out by failing, and spoil the connection; what is
/// left are transactions in which the application's statement is the one that fails.
const CHECK_EVERY: usize = 16;

/// Posta's store on PostgreSQL: a pool, and Posta's statements for one schema.
///
/// Cheap to clone; clones share the pool and the listening connection.
#[derive(Clone)]
pub struct PostgresStore {
    shared: Arc<Shared>,
}

struct Shared {
    pool: Pool<Manager>,
    tables: Tables,
    texts: Texts,
    timeout: Duration,
    transaction_pooler: bool,
    /// Whether connections keep statements prepared as Posta says: not those of the application's
    /// own pool, which stay as it has set them.
    prepares: bool,
    listener: Listener,
    walks: Walks,
}

impl Store for PostgresStore {
    type Database = Postgres;

    fn connect(url: &str, connect: &Connect) -> Result<Self, StoreError> {
        let unusable = |error: Box<dyn std::error::Error + Send + Sync>| {
            StoreError::new("use the database's URL", StoreErrorKind::Rejected, error)
        };
        let target = Target::parse(url).map_err(|error| unusable(error.into()))?;
        let manager = connect::manager(target).map_err(|error| unusable(error.into()))?;
        let pool = Pool::builder(manager)
            .max_size(connect.connections_max.max(1))
            .build()
            .map_err(|error| unusable(error.into()))?;
        Ok(Self::new(pool, connect, !connect.transaction_pooler))
    }

    fn with_pool(pool: DatabasePool<Postgres>, connect: &Connect) -> Self {
        Self::new(pool, connect, false)
    }

    fn tables(&self) -> &Tables {
        &self.shared.tables
    }

    async fn begin(&self) -> Result<Session<Postgres>, StoreError> {
        let deadline = Instant::now() + self.shared.timeout;
        let attempt = tokio::time::timeout_at(deadline, self.begin_alive());
        attempt.await.unwrap_or_else(|_| {
            let waited = format!("no connection within {:?}", self.shared.timeout);
            Err(unavailable(waited))
        })
    }

    /// In a transaction whose statement failed, every further one fails. It may have been one whose
    /// plan a migration has made stale, and would fail again on this connection for ever. So all are
    /// prepared anew.
    async fn undo(&self, mut session: Session<Postgres>) {
        let connection: &mut AsyncPgConnection = &mut session;
        if self.shared.prepares && connection.batch_execute("SELECT 1").await.is_err() {
            connection.set_prepared_statement_cache_size(CacheSize::Disabled);
            connection.set_prepared_statement_cache_size(CacheSize::Unbounded);
        }
        session.rollback().await;
    }

    async fn notify(&self) -> Result<(), StoreError> {
        let mut session = self.begin().await?;
        self.shared.listener.notify(&mut session).await?;
        session.commit().await
    }

    async fn notified(&self) -> Result<(), StoreError> {
        if self.shared.transaction_pooler {
            // LISTEN belongs to a server's session, and behind such a pooler no client has one.
            return std::future::pending().await;
        }
        self.shared.listener.notified(&self.shared.pool).await
    }
}

impl PostgresStore {
    fn new(pool: Pool<Manager>, connect: &Connect, prepares: bool) -> Self {
        Self {
            shared: Arc::new(Shared {
                pool,
                tables: connect.tables.clone(),
                texts: Texts::new(&connect.tables),
                timeout: connect.timeout,
                transaction_pooler: connect.transaction_pooler,
                prepares,
                listener: Listener::new(&connect.tables),
                walks: Walks::default(),
            }),
        }
    }

    pub(super) fn texts(&self) -> &Texts {
        &self.shared.texts
    }

    pub(super) fn walks(&self) -> &Walks {
        &self.shared.walks
    }

    /// Takes a connection and begins a transaction on it; a pooled connection that turns out to be
    /// dead is replaced by the next.
    ///
    /// Bounded: every pooled connection can be dead once, and the last attempt is made on a new
    /// one.
    async fn begin_alive(&self) -> Result<Session<Postgres>, StoreError> {
        let attempts = self.shared.pool.status().max_size + 1;
        let mut last = None;
        for _ in 0..attempts {
            let connection = self.shared.pool.get().await.map_err(unreachable)?;
            let uses = Object::metrics(&connection).recycle_count;
            let begin = if uses % CHECK_EVERY == 0 {
                BEGIN_CHECKED
            } else {
                BEGIN
            };
            let mut session = Session::new(connection, None);
            if self.shared.transaction_pooler {
                let connection: &mut AsyncPgConnection = &mut session;
                connection.set_prepared_statement_cache_size(CacheSize::Disabled);
            }
            match AnsiTransactionManager::begin_transaction_sql(&mut *session, begin).await {
                Ok(()) => return Ok(session),
                Err(error) => {
                    let kind = classify(&error);
                    let error = StoreError::new("begin a transaction", kind, error);
                    if uses == 0 || kind != StoreErrorKind::Unavailable {
                        return Err(error);
                    }
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "a pooled connection was of no use and is replaced"
                    );
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| unavailable("no pooled connection was alive")))
    }
}

/// Why the pool gave no connection.
pub(super) fn unreachable(error: PoolError<ManagerError>) -> StoreError {
    let kind = match &error {
        PoolError::Backend(ManagerError::ConnectionError(error)) => kind_of(error),
        PoolError::Backend(ManagerError::QueryError(error)) => classify(error),
        // A timeout, a closed pool, or a hook of the application's own pool.
        _ => StoreErrorKind::Unavailable,
    };
    StoreError::new("connect to the database", kind, error)
}

fn kind_of(error: &ConnectionError) -> StoreErrorKind {
    match error {
        ConnectionError::InvalidConnectionUrl(_) | ConnectionError::InvalidCString(_) => {
            StoreErrorKind::Rejected
        }
        ConnectionError::CouldntSetupConfiguration(error) => classify(error),
        // BadConnection, and what diesel may add: nothing is known that speaks against another
        // attempt.
        _ => StoreErrorKind::Unavailable,
    }
}

fn unavailable(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> StoreError {
    StoreError::new("connect to the database", StoreErrorKind::Unavailable, why)
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore")
            .field("tables", &self.shared.tables)
            .field("transaction_pooler", &self.shared.transaction_pooler)
            .finish_non_exhaustive()
    }
}
