//! PostgreSQL databases of one test each, on the server that `tests/run` starts.

use std::future::Future;
use std::time::Duration;

use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl, SimpleAsyncConnection};
use posta::Tables;
use posta::store::{Connect, MigrationStore, PostgresStore, Store};

/// A variable that `tests/run` sets.
pub(crate) fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set: run tests/run"))
}

/// A database of one test; dropped with it.
pub(crate) struct Guard {
    name: String,
}

/// An empty database: its URL, and names for Posta's tables in it.
pub(crate) async fn fresh() -> (String, Tables, Guard) {
    let id = uuid::Uuid::now_v7().simple().to_string();
    let name = format!("posta_test_{id}");
    run(
        &variable("POSTA_TEST_POSTGRES"),
        &format!("CREATE DATABASE {name}"),
    )
    .await;
    let guard = Guard { name };
    // Not the default name, so that a statement that forgets to ask for it fails.
    let tables = Tables::named(format!("s{}", &id[id.len() - 12..])).expect("a valid name");
    (guard.url(), tables, guard)
}

/// A database with Posta's tables, and a store on it.
pub(crate) async fn migrated() -> (Guard, PostgresStore) {
    let (url, tables, guard) = fresh().await;
    let store = store(&url, tables);
    store
        .migrate()
        .await
        .expect("migrations run on an empty database");
    (guard, store)
}

/// A store on a pool of its own.
pub(crate) fn store(url: &str, tables: Tables) -> PostgresStore {
    PostgresStore::connect(url, &connect(tables)).expect("a valid URL")
}

/// How tests connect: a timeout that only a hang reaches.
pub(crate) fn connect(tables: Tables) -> Connect {
    Connect {
        tables,
        connections_max: 8,
        timeout: Duration::from_secs(20),
        transaction_pooler: false,
    }
}

impl Guard {
    /// The database's URL.
    pub(crate) fn url(&self) -> String {
        self.on("POSTA_TEST_POSTGRES")
    }

    /// The database's URL through PgBouncer.
    pub(crate) fn pooled_url(&self) -> String {
        self.on("POSTA_TEST_PGBOUNCER")
    }

    /// The database's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A plain diesel connection to the database, as an application has one.
    pub(crate) async fn connection(&self) -> AsyncPgConnection {
        connect_to(&self.url()).await
    }

    fn on(&self, variable_name: &str) -> String {
        let url = variable(variable_name);
        let (server, _) = url.rsplit_once('/').expect("the URL ends in a database");
        format!("{server}/{}", self.name)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // FORCE: pools of the test may still have connections. Through PgBouncer there may be a
        // moment in which it opens another.
        let drop_database = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let done = std::thread::spawn(move || {
            blocked_on(run(&variable("POSTA_TEST_POSTGRES"), &drop_database));
        });
        if done.join().is_err() && !std::thread::panicking() {
            panic!("the test's database {} could not be dropped", self.name);
        }
    }
}

/// Runs statements on a connection of their own.
pub(crate) async fn run(url: &str, sql: &str) {
    let mut connection = AsyncPgConnection::establish(url)
        .await
        .expect("the server is there");
    connection
        .batch_execute(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
}

/// Where the server listens.
pub(crate) fn address() -> String {
    let url = variable("POSTA_TEST_POSTGRES");
    let (_, rest) = url.rsplit_once('@').expect("the URL has a login");
    let (address, _) = rest.split_once('/').expect("the URL has a path");
    address.to_owned()
}

/// A plain diesel connection to the database of a URL.
pub(crate) async fn connect_to(url: &str) -> AsyncPgConnection {
    AsyncPgConnection::establish(url)
        .await
        .expect("the server takes connections")
}

/// One number.
pub(crate) async fn number(connection: &mut AsyncPgConnection, sql: &str) -> i64 {
    #[derive(diesel::QueryableByName)]
    struct Row {
        #[diesel(sql_type = diesel::sql_types::BigInt)]
        value: i64,
    }
    let row: Row = diesel::sql_query(format!("SELECT ({sql})::bigint AS value"))
        .get_result(connection)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error}"));
    row.value
}

fn blocked_on(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(future);
}
