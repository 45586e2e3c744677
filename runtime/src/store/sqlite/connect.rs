//! From a URL to a pool of connections that are set up alike.

use std::path::{Path, PathBuf};
use std::time::Duration;

use deadpool::Runtime;
use deadpool::managed::{Pool, PoolError, TimeoutType};
use diesel::connection::SimpleConnection;
use diesel::result::ConnectionError;
use diesel::sql_types::Text;
use diesel::{Connection as _, ConnectionResult, SqliteConnection};
use diesel_async::pooled_connection::{ManagerConfig, PoolError as ManagerError, RecyclingMethod};
use diesel_async::sync_connection_wrapper::SpawnBlocking;
use futures_util::FutureExt;

use super::classify::{classify, failed, not_opened};
use super::statement::Sql;
use super::{BlockingThread, Connection, Manager, Sqlite};
use crate::store::{Connect, DatabasePool, PooledConnection, StoreError, StoreErrorKind, Tables};

/// How long one statement waits inside SQLite for a lock of another process. `begin` asks again
/// until its own timeout; short, since a dropped future waits for its statement.
pub(super) const BUSY_WAIT: Duration = Duration::from_millis(200);

/// The file that a URL names: `sqlite://path`, `sqlite:path`, or the path alone; taken literally,
/// relative to the working directory unless it begins with `/`.
pub(super) fn file_of(url: &str) -> Result<PathBuf, StoreError> {
    let refused =
        |why: String| StoreError::new("connect to the database", StoreErrorKind::Rejected, why);
    let path = match url.split_once(':') {
        Some(("sqlite", rest)) => rest.strip_prefix("//").unwrap_or(rest),
        Some((scheme, rest)) if rest.starts_with("//") => {
            return Err(refused(format!(
                "the URL's scheme is {scheme:?}, not sqlite"
            )));
        }
        _ => url,
    };
    if path.is_empty() {
        return Err(refused("the URL names no file".to_owned()));
    }
    if path == ":memory:" || path.starts_with("file:") {
        return Err(refused(format!(
            "{path:?} is no path: several connections and processes share one file, which a database in memory is not"
        )));
    }
    if path.contains('\0') {
        return Err(refused("the file's name holds a NUL".to_owned()));
    }
    Ok(PathBuf::from(path))
}

/// A pool of connections to a file; connects on demand.
pub(super) fn pool(file: &Path, connect: &Connect) -> Result<DatabasePool<Sqlite>, StoreError> {
    let timeout = connect.timeout;
    let mut config = ManagerConfig::<Connection>::default();
    // A session whose transaction did not end takes its connection with it, so nothing is left to
    // ask of one in the pool.
    config.recycling_method = RecyclingMethod::Fast;
    config.custom_setup = Box::new(move |path| open(PathBuf::from(path), timeout).boxed());
    let path = file.to_str().ok_or_else(|| {
        let why = "the file's name is not UTF-8";
        StoreError::new("connect to the database", StoreErrorKind::Rejected, why)
    })?;
    Pool::builder(Manager::new_with_config(path, config))
        .max_size(connect.connections_max.max(1))
        .runtime(Runtime::Tokio1)
        .wait_timeout(Some(timeout))
        .create_timeout(Some(timeout))
        .build()
        .map_err(|error| {
            StoreError::new(
                "connect to the database",
                StoreErrorKind::Unavailable,
                error,
            )
        })
}

/// Opens a connection and sets it up, on a blocking thread.
pub(super) async fn open(file: PathBuf, timeout: Duration) -> ConnectionResult<Connection> {
    let mut thread = BlockingThread;
    let connection = thread
        .spawn_blocking(move || open_here(&file, timeout))
        .await
        .map_err(|error| ConnectionError::BadConnection(error.to_string()))??;
    Ok(Connection::with_runtime(connection, thread))
}

fn open_here(file: &Path, timeout: Duration) -> ConnectionResult<SqliteConnection> {
    if let Some(directory) = file
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        && !directory.is_dir()
    {
        return Err(ConnectionError::BadConnection(format!(
            "cannot open {file:?}: there is no directory {directory:?}"
        )));
    }
    let mut connection = SqliteConnection::establish(&file.to_string_lossy()).map_err(|error| {
        ConnectionError::BadConnection(format!("cannot open {file:?}: {error}"))
    })?;
    let deadline = std::time::Instant::now() + timeout;
    loop {
        match set_up(&mut connection) {
            Ok(()) => return Ok(connection),
            // Several processes that make the same file at the same moment refuse each other,
            // without a wait.
            Err(error)
                if classify(&error) == StoreErrorKind::Contention
                    && std::time::Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(ConnectionError::CouldntSetupConfiguration(error)),
        }
    }
}

/// Sets up a connection of Posta's own.
///
/// FULL and not NORMAL: in WAL mode NORMAL does not reach the disk at a commit, so a power cut
/// takes back what was committed. Its broker delivery has been acknowledged by then: the message
/// would be lost. FULL costs one sync per commit.
fn set_up(connection: &mut SqliteConnection) -> diesel::QueryResult<()> {
    let busy = BUSY_WAIT.as_millis();
    connection.batch_execute(&format!("PRAGMA busy_timeout = {busy}"))?;
    connection.batch_execute("PRAGMA journal_mode = WAL")?;
    connection.batch_execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON")
}

/// What a connection says of its file.
pub(super) struct Opened {
    /// The file's path, resolved by SQLite.
    pub(super) file: String,
    /// Its journal mode.
    pub(super) journal: String,
}

/// Reads which file a connection is open on, and how.
pub(super) fn opened(connection: &mut SqliteConnection) -> diesel::QueryResult<Opened> {
    let tables = Tables::default();
    let file = Sql::new(
        &tables,
        "SELECT file FROM pragma_database_list WHERE name = 'main'",
    );
    let journal = Sql::new(&tables, "PRAGMA journal_mode");
    Ok(Opened {
        file: file.statement().one::<Text, String>(connection)?,
        journal: journal.statement().one::<Text, String>(connection)?,
    })
}

/// A connection out of the pool.
pub(super) async fn get(
    pool: &DatabasePool<Sqlite>,
) -> Result<PooledConnection<Sqlite>, StoreError> {
    pool.get().await.map_err(|error| match error {
        PoolError::Backend(ManagerError::ConnectionError(error)) => not_opened(error),
        PoolError::Backend(ManagerError::QueryError(error)) => failed("get a connection", error),
        PoolError::Timeout(TimeoutType::Wait) => StoreError::new(
            "get a connection",
            StoreErrorKind::Unavailable,
            "all connections of the pool were in use for too long",
        ),
        error => StoreError::new("get a connection", StoreErrorKind::Unavailable, error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_file_or_says_why_not() {
        for (url, file) in [
            ("sqlite:///var/lib/a.db", "/var/lib/a.db"),
            ("sqlite://a.db", "a.db"),
            ("sqlite:a/b.db", "a/b.db"),
            ("a.db", "a.db"),
            ("/tmp/with?mark:and colon.db", "/tmp/with?mark:and colon.db"),
        ] {
            assert_eq!(file_of(url).unwrap(), Path::new(file), "{url}");
        }
        for url in [
            "",
            "sqlite:",
            "sqlite::memory:",
            "sqlite://:memory:",
            "file:a.db",
            "a\0b",
        ] {
            assert!(file_of(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_refused_url_is_not_repeated() {
        let error = file_of("postgres://posta:secret@host/db").unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert_eq!(source, "the URL's scheme is \"postgres\", not sqlite");
    }
}
