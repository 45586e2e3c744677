use std::future::Future;
use std::time::Duration;

use diesel::sql_types::{BigInt, Binary, Text};
use diesel_async::RunQueryDsl;
use posta::store::{Connect, Store};
use posta::{Database, Postgres, Sqlite, Tables};

use super::effects::{DeadLetter, Effect};
use crate::harness;

/// A database that tests run on: how to get a fresh one, and the few statements of the test's own
/// tables.
pub(crate) trait TestDatabase: Database {
    /// How the database is named when a child process is told.
    const KIND: &'static str;
    /// Removes the database when dropped.
    type Guard;

    fn fresh() -> impl Future<Output = (String, Tables, Self::Guard)>;

    /// Runs statements of the test's own, without binds.
    fn run(
        connection: &mut Self::Connection,
        sql: &str,
    ) -> impl Future<Output = diesel::QueryResult<()>> + Send;

    /// Inserts one effect.
    fn record(
        connection: &mut Self::Connection,
        effect: Effect,
    ) -> impl Future<Output = diesel::QueryResult<()>> + Send;

    /// All effects of a consumer, in the order in which they took effect.
    fn effects(
        connection: &mut Self::Connection,
        consumer: &str,
    ) -> impl Future<Output = diesel::QueryResult<Vec<Effect>>> + Send;

    /// All dead letters in a table, in the order in which they were set aside.
    fn dead_letters(
        connection: &mut Self::Connection,
        table: &str,
    ) -> impl Future<Output = diesel::QueryResult<Vec<DeadLetter>>> + Send;

    /// One number.
    fn count(
        connection: &mut Self::Connection,
        sql: &str,
    ) -> impl Future<Output = diesel::QueryResult<i64>> + Send;
}

/// A store on a fresh pool.
pub(crate) fn store<D: Database>(url: &str, tables: &Tables) -> D::Store {
    let connect = Connect {
        tables: tables.clone(),
        connections_max: 8,
        timeout: Duration::from_secs(30),
        transaction_pooler: false,
    };
    D::Store::connect(url, &connect).expect("a valid database URL")
}

#[derive(diesel::QueryableByName)]
struct CountRow {
    #[diesel(sql_type = BigInt)]
    count: i64,
}

macro_rules! test_database {
    ($database:ty, $kind:literal, $guard:ty, $fresh:expr, $insert:literal, $select:literal) => {
        impl TestDatabase for $database {
            const KIND: &'static str = $kind;
            type Guard = $guard;

            async fn fresh() -> (String, Tables, Self::Guard) {
                $fresh.await
            }

            async fn run(connection: &mut Self::Connection, sql: &str) -> diesel::QueryResult<()> {
                diesel_async::SimpleAsyncConnection::batch_execute(connection, sql).await
            }

            async fn record(
                connection: &mut Self::Connection,
                effect: Effect,
            ) -> diesel::QueryResult<()> {
                diesel::sql_query($insert)
                    .bind::<Text, _>(effect.consumer)
                    .bind::<Text, _>(effect.key)
                    .bind::<BigInt, _>(effect.number)
                    .bind::<Text, _>(effect.message_id)
                    .bind::<Binary, _>(effect.payload)
                    .execute(connection)
                    .await
                    .map(drop)
            }

            async fn effects(
                connection: &mut Self::Connection,
                consumer: &str,
            ) -> diesel::QueryResult<Vec<Effect>> {
                diesel::sql_query($select)
                    .bind::<Text, _>(consumer.to_owned())
                    .load::<Effect>(connection)
                    .await
            }

            async fn dead_letters(
                connection: &mut Self::Connection,
                table: &str,
            ) -> diesel::QueryResult<Vec<DeadLetter>> {
                let columns = "consumer, message_id, message_type, reason, error, payload";
                diesel::sql_query(format!("SELECT {columns} FROM {table} ORDER BY position"))
                    .load::<DeadLetter>(connection)
                    .await
            }

            async fn count(
                connection: &mut Self::Connection,
                sql: &str,
            ) -> diesel::QueryResult<i64> {
                let row = diesel::sql_query(sql)
                    .get_result::<CountRow>(connection)
                    .await?;
                Ok(row.count)
            }
        }
    };
}

async fn fresh_file() -> (String, Tables, harness::sqlite::SqliteFile) {
    let file = harness::sqlite::SqliteFile::absent();
    (file.url(), Tables::default(), file)
}

test_database!(
    Sqlite,
    "sqlite",
    harness::sqlite::SqliteFile,
    fresh_file(),
    "INSERT INTO effect (consumer, key, number, message_id, payload) VALUES (?, ?, ?, ?, ?)",
    "SELECT consumer, key, number, message_id, payload FROM effect WHERE consumer = ? ORDER BY position"
);
test_database!(
    Postgres,
    "postgres",
    harness::postgres::Guard,
    harness::postgres::fresh(),
    "INSERT INTO effect (consumer, key, number, message_id, payload) VALUES ($1, $2, $3, $4, $5)",
    "SELECT consumer, key, number, message_id, payload FROM effect WHERE consumer = $1 ORDER BY position"
);
