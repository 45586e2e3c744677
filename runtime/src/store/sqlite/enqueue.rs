use diesel::connection::SimpleConnection;
use diesel::{QueryResult, SqliteConnection};

use super::Connection;
use super::classify::failed;
use super::connection::on_thread;
use super::row::bind_envelope;
use super::statement::Sql;
use crate::message::Envelope;
use crate::store::{StoreError, Tables};

const OPERATION: &str = "write into the outbox";

const INSERT: &str = "INSERT INTO {posta}outbox
         (message_id, message_type, version, ordering_key, headers, content_type, payload, slot)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?)";

/// Writes envelopes into the outbox, all or none, in the order given.
pub(super) async fn insert(
    connection: &mut Connection,
    tables: &Tables,
    envelopes: &[Envelope],
) -> Result<(), StoreError> {
    if envelopes.is_empty() {
        return Ok(());
    }
    let (insert, envelopes) = (Sql::new(tables, INSERT), envelopes.to_vec());
    on_thread(connection, OPERATION, move |connection| {
        insert_all(connection, &insert, &envelopes)
    })
    .await
}

/// As [`insert`], on the thread that calls.
pub(crate) fn insert_blocking(
    connection: &mut SqliteConnection,
    tables: &Tables,
    envelopes: &[Envelope],
) -> Result<(), StoreError> {
    if envelopes.is_empty() {
        return Ok(());
    }
    insert_all(connection, &Sql::new(tables, INSERT), envelopes)
        .map_err(|error| failed(OPERATION, error))
}

/// The envelopes in the order given.
fn insert_all(
    connection: &mut SqliteConnection,
    insert: &Sql,
    envelopes: &[Envelope],
) -> QueryResult<()> {
    all_or_none(connection, envelopes, |connection, envelope| {
        insert_one(connection, insert, envelope)
    })
}

/// One prepared statement, run once for each row: SQLite is in this process, so there is no round
/// trip to save, and one text for any number of rows stays prepared. A savepoint makes several rows
/// one, whether diesel began the transaction, the application did with SQL of its own, or nobody.
pub(super) fn all_or_none<T>(
    connection: &mut SqliteConnection,
    rows: &[T],
    insert: impl Fn(&mut SqliteConnection, &T) -> QueryResult<()>,
) -> QueryResult<()> {
    if let [row] = rows {
        return insert(connection, row);
    }
    connection.batch_execute("SAVEPOINT posta_insert")?;
    let inserted = rows.iter().try_for_each(|row| insert(connection, row));
    if inserted.is_err() {
        // A failure that has ended the whole transaction (a full disk) has taken the savepoint
        // along; it is the one to tell.
        let _ = connection.batch_execute("ROLLBACK TO posta_insert; RELEASE posta_insert");
        return inserted;
    }
    connection.batch_execute("RELEASE posta_insert")
}

fn insert_one(
    connection: &mut SqliteConnection,
    insert: &Sql,
    envelope: &Envelope,
) -> QueryResult<()> {
    bind_envelope(insert.statement(), envelope)
        .bind(envelope.slot().number())
        .execute(connection)
        .map(|_| ())
}
