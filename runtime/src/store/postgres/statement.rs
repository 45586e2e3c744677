use std::future::Future;
use std::marker::PhantomData;

use diesel::deserialize::FromSqlRow;
use diesel::pg::Pg;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{Error, QueryResult};
use diesel::serialize::ToSql;
use diesel::sql_types::{HasSqlType, Text, Untyped};
use diesel_async::{AsyncConnectionCore, AsyncPgConnection};
use futures_util::StreamExt;
use futures_util::future::{BoxFuture, try_join};
use futures_util::stream::BoxStream;

use super::classify::failed;
use crate::store::StoreError;

/// Of this transaction only: the setting is the application's connection's too.
const JIT_OFF: &str = "SELECT set_config('jit', 'off', true)";

/// One of Posta's statements: a fixed SQL text, its binds, and the SQL types of the rows that it
/// returns.
///
/// diesel's own `sql_query` is prepared anew at each call, since its text may hold anything. The
/// texts here are made once for a store and never vary with the number of rows (those are bound as
/// arrays), so each is prepared once for a connection and found again by its text.
#[must_use = "a statement does nothing until it is run"]
pub(crate) struct Statement<'a, Row = Untyped> {
    sql: &'a str,
    binds: Vec<Box<dyn QueryFragment<Pg> + Send + 'a>>,
    row: PhantomData<fn() -> Row>,
}

impl<'a> Statement<'a> {
    /// A statement with the placeholders `$1`, `$2`, … in its text.
    pub(crate) fn new(sql: &'a str) -> Self {
        Self {
            sql,
            binds: Vec::new(),
            row: PhantomData,
        }
    }

    /// Says what its rows are made of, column by column.
    pub(crate) fn returning<Row>(self) -> Statement<'a, Row> {
        Statement {
            sql: self.sql,
            binds: self.binds,
            row: PhantomData,
        }
    }

    /// Runs it; returns how many rows it changed.
    pub(crate) async fn run(
        self,
        connection: &mut AsyncPgConnection,
        operation: &'static str,
    ) -> Result<usize, StoreError> {
        let result = connection.execute_returning_count(self).await;
        result.map_err(|error| failed(connection, operation, error))
    }
}

impl<'a, Row: 'a> Statement<'a, Row> {
    /// Binds the next placeholder's value.
    pub(crate) fn bind<ST, Value>(mut self, value: Value) -> Self
    where
        ST: Send + 'a,
        Pg: HasSqlType<ST>,
        Value: ToSql<ST, Pg> + Send + 'a,
    {
        self.binds.push(Box::new(Bind {
            value,
            sql_type: PhantomData::<fn() -> ST>,
        }));
        self
    }

    /// Runs it; returns its rows.
    pub(crate) async fn rows<U>(
        self,
        connection: &mut AsyncPgConnection,
        operation: &'static str,
    ) -> Result<Vec<U>, StoreError>
    where
        Row: 'static,
        U: FromSqlRow<Row, Pg> + Send + 'static,
    {
        let result = built(connection.load(self)).await;
        result.map_err(|error| failed(connection, operation, error))
    }

    /// Runs a statement that reads the front of large tables; returns its rows.
    ///
    /// The planner thinks such a statement dearer than it is, and would spend a hundred times its
    /// duration on compiling it; so for the rest of the transaction it may not.
    pub(crate) async fn front_rows<U>(
        self,
        connection: &mut AsyncPgConnection,
        operation: &'static str,
    ) -> Result<Vec<U>, StoreError>
    where
        Row: 'static,
        U: FromSqlRow<Row, Pg> + Send + 'static,
    {
        let jit_off = Statement::new(JIT_OFF).returning::<(Text,)>();
        let result = {
            let connection = &*connection;
            try_join(
                jit_off.pipelined::<(String,)>(connection),
                self.pipelined(connection),
            )
            .await
        };
        result
            .map(|(_, rows)| rows)
            .map_err(|error| failed(connection, operation, error))
    }

    /// Runs a statement that always returns one row.
    pub(crate) async fn row<U>(
        self,
        connection: &mut AsyncPgConnection,
        operation: &'static str,
    ) -> Result<U, StoreError>
    where
        Row: 'static,
        U: FromSqlRow<Row, Pg> + Send + 'static,
    {
        let rows = self.rows(connection, operation).await?;
        let none = || failed(connection, operation, Error::NotFound);
        rows.into_iter().next().ok_or_else(none)
    }

    /// Sends it without waiting for what was sent before it, when the futures of several are polled
    /// together.
    pub(crate) fn pipelined<'c, U>(
        self,
        mut connection: &'c AsyncPgConnection,
    ) -> impl Future<Output = QueryResult<Vec<U>>> + Send + 'c
    where
        Row: 'static,
        U: FromSqlRow<Row, Pg> + Send + 'static,
    {
        built(connection.load(self))
    }
}

/// Builds each row that a statement returns.
async fn built<Row, U, Raw>(
    loaded: BoxFuture<'_, QueryResult<BoxStream<'static, QueryResult<Raw>>>>,
) -> QueryResult<Vec<U>>
where
    U: FromSqlRow<Row, Pg>,
    Raw: for<'r> diesel::row::Row<'r, Pg>,
{
    let mut raw = loaded.await?;
    let mut rows = Vec::new();
    while let Some(row) = raw.next().await {
        rows.push(U::build_from_row(&row?).map_err(Error::DeserializationError)?);
    }
    Ok(rows)
}

impl<Row> QueryFragment<Pg> for Statement<'_, Row> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_sql(self.sql);
        // diesel writes a placeholder wherever it takes a bind. The text has its own, in any order
        // and more than once; so these go into a comment.
        out.push_sql("\n-- ");
        self.binds
            .iter()
            .try_for_each(|bind| bind.walk_ast(out.reborrow()))
    }
}

impl<Row> QueryId for Statement<'_, Row> {
    type QueryId = ();

    /// One type stands for many statements: the cache must tell them apart by their texts.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<Row> Query for Statement<'_, Row> {
    type SqlType = Row;
}

#[cfg(feature = "postgres-blocking")]
impl<Row> diesel::RunQueryDsl<diesel::PgConnection> for Statement<'_, Row> {}

/// A value and the SQL type that it is bound as.
struct Bind<ST, Value> {
    value: Value,
    sql_type: PhantomData<fn() -> ST>,
}

impl<ST, Value> QueryFragment<Pg> for Bind<ST, Value>
where
    Pg: HasSqlType<ST>,
    Value: ToSql<ST, Pg>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Pg>) -> QueryResult<()> {
        out.push_bind_param::<ST, Value>(&self.value)
    }
}

/// Declares a noun's statements: each field becomes the given SQL with the names of one store's
/// tables in it.
macro_rules! statements {
    ($name:ident { $($field:ident = $sql:expr;)* }) => {
        #[derive(Debug)]
        pub(in crate::store::postgres) struct $name {
            $(pub(in crate::store::postgres) $field: String,)*
        }

        impl $name {
            pub(in crate::store::postgres) fn new(tables: &$crate::store::Tables) -> Self {
                Self { $($field: $crate::store::postgres::statement::qualified(tables, $sql),)* }
            }
        }
    };
}
pub(super) use statements;

/// When the place of a dead letter is due: never, as a point in time that can be compared with and
/// subtracted from. `0002_failure.sql` says why it is none of PostgreSQL's own.
macro_rules! never {
    () => {
        "timestamptz '9999-12-31 00:00:00+00'"
    };
}
pub(super) use never;

/// A statement with the names of these tables.
pub(crate) fn qualified(tables: &crate::store::Tables, sql: &str) -> String {
    tables.qualify(sql, &format!("\"{}\".", tables.name()))
}
