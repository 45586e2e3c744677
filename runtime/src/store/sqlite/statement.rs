//! SQL text and its bound values, prepared once per connection.
//!
//! diesel's `sql_query` prepares anew at each call. These statements have a text that depends on
//! nothing but the tables' prefix, so diesel may keep them prepared; everything else is bound.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::query_dsl::methods::LoadQuery;
use diesel::sql_types::{BigInt, Binary, Nullable, Text};
use diesel::sqlite::Sqlite as Backend;
use diesel::{OptionalExtension, QueryResult, RunQueryDsl, SqliteConnection};
use uuid::Uuid;

use crate::store::Tables;

/// Now, in whole microseconds since 1970, by SQLite's clock; one value for each row that a
/// statement returns, not for all. The migrations have the same text.
const NOW: &str = "(CAST((julianday('now') - 2440587.5) * 86400000.0 + 0.5 AS INTEGER) * 1000)";

/// The last time that there is: when a row that keeps a dead letter's place is due. The migrations
/// have the same number.
const NEVER: &str = "9223372036854775807";

/// The time of a row of the outbox that waits behind another of its key: later than any hold ends,
/// and not that of a place. The migrations have the same number.
const BEHIND: &str = "9223372036854775806";

/// A hundred years: what a longer duration counts as, so that a time plus it stays far inside 64
/// bits.
const MICROS_MAX: i64 = 100 * 366 * 24 * 3600 * 1_000_000;

/// A statement's text: `{posta}` is the tables' prefix, `{now}` the time, `{never}` that of what is
/// parked and `{behind}` that of what is behind, each `?` a value to bind, in order.
#[derive(Clone, Debug)]
pub(super) struct Sql(Arc<str>);

impl Sql {
    pub(super) fn new(tables: &Tables, text: &str) -> Self {
        let prefix = format!("{}_", tables.name());
        let text = tables.qualify(text, &prefix);
        let constants = [("{now}", NOW), ("{never}", NEVER), ("{behind}", BEHIND)];
        let text = constants
            .into_iter()
            .fold(text, |text, (name, value)| text.replace(name, value));
        Self(text.into())
    }

    /// The statement with its first value.
    pub(super) fn bind(&self, value: impl Into<Value>) -> Statement {
        self.statement().bind(value)
    }

    /// The statement without a value so far.
    pub(super) fn statement(&self) -> Statement {
        Statement {
            sql: self.clone(),
            values: Vec::new(),
        }
    }
}

/// A statement with values; run once.
#[derive(Debug)]
pub(super) struct Statement {
    sql: Sql,
    values: Vec<Value>,
}

impl Statement {
    /// Binds the next `?`.
    pub(super) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// Runs it; how many rows it changed.
    pub(super) fn execute(self, connection: &mut SqliteConnection) -> QueryResult<usize> {
        Returning::<()>::of(self).execute(connection)
    }

    /// Runs it; the rows that it returns.
    pub(super) fn rows<ST, U>(self, connection: &mut SqliteConnection) -> QueryResult<Vec<U>>
    where
        Returning<ST>: for<'q> LoadQuery<'q, SqliteConnection, U>,
    {
        Returning::<ST>::of(self).load(connection)
    }

    /// Runs it; its first row.
    pub(super) fn first<ST, U>(self, connection: &mut SqliteConnection) -> QueryResult<Option<U>>
    where
        Returning<ST>: for<'q> LoadQuery<'q, SqliteConnection, U>,
    {
        Returning::<ST>::of(self).get_result(connection).optional()
    }

    /// Runs one that always returns a row, such as a count.
    pub(super) fn one<ST, U>(self, connection: &mut SqliteConnection) -> QueryResult<U>
    where
        Returning<ST>: for<'q> LoadQuery<'q, SqliteConnection, U>,
    {
        Returning::<ST>::of(self).get_result(connection)
    }
}

/// A statement whose rows have the SQL types `ST`.
#[derive(Debug)]
pub(super) struct Returning<ST> {
    statement: Statement,
    types: PhantomData<ST>,
}

impl<ST> Returning<ST> {
    fn of(statement: Statement) -> Self {
        Self {
            statement,
            types: PhantomData,
        }
    }
}

impl<ST> QueryFragment<Backend> for Returning<ST> {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, Backend>) -> QueryResult<()> {
        let Statement { sql, values } = &self.statement;
        let mut values = values.iter();
        for (index, text) in sql.0.split('?').enumerate() {
            if index > 0 {
                let value = values.next().expect("each ? of a statement has a value");
                value.push(&mut out)?;
            }
            out.push_sql(text);
        }
        assert!(values.next().is_none(), "each value of a statement has a ?");
        Ok(())
    }
}

impl<ST> QueryId for Returning<ST> {
    type QueryId = ();

    // Without an id of its own the text is what diesel knows a prepared statement by.
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<ST> Query for Returning<ST> {
    type SqlType = ST;
}

impl<ST> RunQueryDsl<SqliteConnection> for Returning<ST> {}

/// A value to bind.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Integer(Option<i64>),
    Text(Option<String>),
    Blob(Option<Bytes>),
}

impl Value {
    /// A list, for `json_each`: so a statement's text does not depend on how long the list is.
    pub(super) fn json(list: &(impl serde::Serialize + ?Sized)) -> Self {
        serde_json::to_string(list)
            .expect("numbers and texts have a JSON form")
            .into()
    }

    fn push<'b>(&'b self, out: &mut AstPass<'_, 'b, Backend>) -> QueryResult<()> {
        match self {
            Self::Integer(value) => out.push_bind_param::<Nullable<BigInt>, _>(value),
            Self::Text(Some(value)) => out.push_bind_param::<Text, str>(value),
            Self::Text(None) => out.push_bind_param::<Nullable<Text>, _>(&None::<String>),
            Self::Blob(Some(value)) => out.push_bind_param::<Binary, [u8]>(value),
            Self::Blob(None) => out.push_bind_param::<Nullable<Binary>, _>(&None::<Vec<u8>>),
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Integer(Some(value))
    }
}

impl From<u8> for Value {
    fn from(value: u8) -> Self {
        i64::from(value).into()
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        i64::from(value).into()
    }
}

/// 1 and 0.
impl From<bool> for Value {
    fn from(value: bool) -> Self {
        i64::from(value).into()
    }
}

/// A limit; more than 63 bits hold counts as no limit.
impl From<usize> for Value {
    fn from(value: usize) -> Self {
        i64::try_from(value).unwrap_or(i64::MAX).into()
    }
}

/// Whole microseconds.
impl From<Duration> for Value {
    fn from(value: Duration) -> Self {
        i64::try_from(value.as_micros())
            .unwrap_or(i64::MAX)
            .min(MICROS_MAX)
            .into()
    }
}

impl From<Option<Duration>> for Value {
    fn from(value: Option<Duration>) -> Self {
        value.map_or(Self::Integer(None), Into::into)
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Self::Integer(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        Self::Text(value)
    }
}

impl From<Bytes> for Value {
    fn from(value: Bytes) -> Self {
        Self::Blob(Some(value))
    }
}

impl From<Uuid> for Value {
    fn from(value: Uuid) -> Self {
        Bytes::copy_from_slice(value.as_bytes()).into()
    }
}
