//! Databases as one, for tests that run on every one of them.

use diesel::Connection as _;
use diesel::connection::SimpleConnection as _;
use diesel::sql_types::{Nullable, Text};
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use posta::store::{Database, PostgresStore, SqliteStore, Store};
use posta::{Postgres, Sqlite, Tables};

use super::postgres::{self, Guard};
use super::sqlite::{self, SqliteFile};

/// A database that tests can have fresh ones of, and whose tables they can write and read past
/// Posta's statements.
pub(crate) trait TestDatabase: Database {
    /// Whether two transactions can write at the same time.
    const CONCURRENT_WRITERS: bool;

    /// What keeps the database there; dropped, it is removed.
    type Home;

    /// An empty database, and a store on it.
    async fn empty() -> (Self::Home, Self::Store);

    /// Another store on the same database, as another process has one.
    async fn another(home: &Self::Home, tables: Tables) -> Self::Store;

    /// Runs statements as any program would.
    async fn run(connection: &mut Self::Connection, sql: &str);

    /// Runs statements as any program would, outside any transaction but their own.
    async fn run_alone(home: &Self::Home, sql: &str);

    /// The first column, a text, of what a query returns.
    async fn texts(connection: &mut Self::Connection, sql: &str) -> Vec<Option<String>>;

    /// The name of a table of Posta's in SQL.
    fn table(tables: &Tables, noun: &str) -> String;

    /// Bytes as a literal in SQL.
    fn bytes(bytes: &[u8]) -> String;

    /// An expression in SQL for the lower-case hexadecimal of a column of bytes.
    fn hex(column: &str) -> String;
}

impl TestDatabase for Sqlite {
    const CONCURRENT_WRITERS: bool = false;

    type Home = SqliteFile;

    async fn empty() -> (SqliteFile, SqliteStore) {
        let file = SqliteFile::absent();
        let store = file.store();
        (file, store)
    }

    async fn another(home: &SqliteFile, tables: Tables) -> SqliteStore {
        SqliteStore::connect(&home.url(), &sqlite::connect(tables))
            .expect("the URL is one of SQLite's")
    }

    async fn run(connection: &mut Self::Connection, sql: &str) {
        connection
            .batch_execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    async fn run_alone(home: &SqliteFile, sql: &str) {
        let path = home.path();
        let mut connection = diesel::SqliteConnection::establish(&path.to_string_lossy())
            .expect("the file can be opened");
        connection
            .batch_execute(sql)
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    async fn texts(connection: &mut Self::Connection, sql: &str) -> Vec<Option<String>> {
        let rows: Vec<Row> = diesel::sql_query(format!("SELECT value FROM ({sql})"))
            .load(connection)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        rows.into_iter().map(|row| row.value).collect()
    }

    fn table(tables: &Tables, noun: &str) -> String {
        format!("{}_{noun}", tables.name())
    }

    fn bytes(bytes: &[u8]) -> String {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("x'{hex}'")
    }

    fn hex(column: &str) -> String {
        format!("lower(hex({column}))")
    }
}

impl TestDatabase for Postgres {
    const CONCURRENT_WRITERS: bool = true;

    type Home = Guard;

    async fn empty() -> (Guard, PostgresStore) {
        let (url, tables, guard) = postgres::fresh().await;
        let store = postgres::store(&url, tables);
        (guard, store)
    }

    async fn another(home: &Guard, tables: Tables) -> PostgresStore {
        postgres::store(&home.url(), tables)
    }

    async fn run(connection: &mut Self::Connection, sql: &str) {
        connection
            .batch_execute(sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    async fn run_alone(home: &Guard, sql: &str) {
        postgres::run(&home.url(), sql).await;
    }

    async fn texts(connection: &mut Self::Connection, sql: &str) -> Vec<Option<String>> {
        let rows: Vec<Row> = diesel::sql_query(sql)
            .load(connection)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        rows.into_iter().map(|row| row.value).collect()
    }

    fn table(tables: &Tables, noun: &str) -> String {
        format!("\"{}\".{noun}", tables.name())
    }

    fn bytes(bytes: &[u8]) -> String {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("'\\x{hex}'::bytea")
    }

    fn hex(column: &str) -> String {
        format!("encode({column}, 'hex')")
    }
}

#[derive(diesel::QueryableByName)]
struct Row {
    #[diesel(sql_type = Nullable<Text>)]
    value: Option<String>,
}
