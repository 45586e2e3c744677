use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use diesel::connection::AnsiTransactionManager;
use tokio::sync::{Mutex, OnceCell, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::connect::{file_of, get, opened, pool};
use super::connection::on_thread;
use super::statement::Sql;
use super::watch::Watch;
use super::{Sqlite, turn};
use crate::store::walk::Walks;
use crate::store::{Connect, DatabasePool, Session, Store, StoreError, StoreErrorKind, Tables};

/// Posta's statements in SQLite's SQL, on a pool of connections to one file.
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

struct Inner {
    pool: DatabasePool<Sqlite>,
    tables: Tables,
    timeout: Duration,
    file: OnceCell<File>,
    watch: Mutex<Watch>,
    walks: Walks,
}

/// The file, known from the first connection on.
struct File {
    path: PathBuf,
    turn: Arc<Semaphore>,
}

impl SqliteStore {
    fn new(pool: DatabasePool<Sqlite>, connect: &Connect) -> Self {
        Self {
            inner: Arc::new(Inner {
                pool,
                tables: connect.tables.clone(),
                timeout: connect.timeout,
                file: OnceCell::new(),
                watch: Mutex::default(),
                walks: Walks::default(),
            }),
        }
    }

    /// A statement on these tables.
    pub(super) fn sql(&self, text: &str) -> Sql {
        Sql::new(&self.inner.tables, text)
    }

    /// The pool, for what needs no transaction.
    pub(super) fn pool(&self) -> &DatabasePool<Sqlite> {
        &self.inner.pool
    }

    pub(super) fn walks(&self) -> &Walks {
        &self.inner.walks
    }

    /// Which file the pool is open on, and whether it is one that Posta can work with.
    async fn file(&self) -> Result<&File, StoreError> {
        let read = async || {
            let mut connection = get(&self.inner.pool).await?;
            let opened = on_thread(&mut connection, "look at the database's file", opened).await?;
            if !opened.journal.eq_ignore_ascii_case("wal") || opened.file.is_empty() {
                return Err(StoreError::new(
                    "look at the database's file",
                    StoreErrorKind::Rejected,
                    format!(
                        "its journal mode is {:?}: posta needs a file in WAL mode, where readers and the writer do not wait \
                         for each other; run PRAGMA journal_mode = WAL on it once",
                        opened.journal
                    ),
                ));
            }
            Ok(File {
                turn: turn::of(&opened.file),
                path: PathBuf::from(opened.file),
            })
        };
        self.inner.file.get_or_try_init(read).await
    }
}

impl Store for SqliteStore {
    type Database = Sqlite;

    fn connect(url: &str, connect: &Connect) -> Result<Self, StoreError> {
        Ok(Self::new(pool(&file_of(url)?, connect)?, connect))
    }

    /// Makes a store on the application's own pool. Nothing is set on its connections; their file
    /// must be in WAL mode, which the first transaction checks, and `PRAGMA synchronous = FULL` is
    /// what makes a commit survive a power cut.
    fn with_pool(pool: DatabasePool<Sqlite>, connect: &Connect) -> Self {
        Self::new(pool, connect)
    }

    fn tables(&self) -> &Tables {
        &self.inner.tables
    }

    async fn begin(&self) -> Result<Session<Sqlite>, StoreError> {
        let deadline = Instant::now() + self.inner.timeout;
        let waiting = self.file().await?.turn.clone().acquire_owned();
        let turn = timeout_at(deadline, waiting).await.map_err(|_| {
            StoreError::new(
                "begin a transaction",
                StoreErrorKind::Contention,
                "other transactions of this process did not end in time",
            )
        })?;
        let turn = turn.expect("the semaphore is never closed");
        let mut session = Session::new(get(&self.inner.pool).await?, Some(turn));
        loop {
            match on_thread(&mut session, "begin a transaction", |connection| {
                AnsiTransactionManager::begin_transaction_sql(connection, "BEGIN IMMEDIATE")
            })
            .await
            {
                // Another process writes. SQLite has waited for it already, unless the
                // application's pool has no busy_timeout.
                Err(error)
                    if error.kind() == StoreErrorKind::Contention && Instant::now() < deadline =>
                {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                outcome => return outcome.map(|()| session),
            }
        }
    }

    /// A snapshot of the file as it is at the first statement (WAL): no turn, no lock.
    async fn begin_read(&self) -> Result<Session<Sqlite>, StoreError> {
        self.file().await?;
        let mut session = Session::new(get(&self.inner.pool).await?, None);
        on_thread(&mut session, "begin a transaction", |connection| {
            AnsiTransactionManager::begin_transaction_sql(connection, "BEGIN DEFERRED")
        })
        .await?;
        Ok(session)
    }

    /// Does nothing: [`Store::notified`] sees every commit.
    async fn notify(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Returns after any commit to the file by another connection, the application's own ones among
    /// them; at most 50 times a second. For one caller at a time.
    async fn notified(&self) -> Result<(), StoreError> {
        let path = self.file().await?.path.clone();
        self.inner
            .watch
            .lock()
            .await
            .changed(path, self.inner.timeout)
            .await
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("SqliteStore");
        if let Some(file) = self.inner.file.get() {
            debug.field("file", &file.path);
        }
        debug
            .field("tables", &self.inner.tables)
            .finish_non_exhaustive()
    }
}
