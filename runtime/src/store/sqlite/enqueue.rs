use diesel::connection::SimpleConnection;
use diesel::{QueryResult, SqliteConnection};

use super::Connection;
use super::connection::on_thread;
use super::row::bind_envelope;
use super::statement::Sql;
use crate::message::Envelope;
use crate::store::{StoreError, Tables};

/// Writes envelopes into the outbox, all or none, in the order given.
///
/// One prepared statement, run once for each row: SQLite is in this process, so there is no round trip to save, and one text for
/// any number of rows stays prepared. A savepoint makes several rows one, whether diesel began the transaction, the
/// application did with SQL of its own, or nobody.
pub(super) async fn insert(
    connection: &mut Connection,
    tables: &Tables,
    envelopes: &[Envelope],
) -> Result<(), StoreError> {
    if envelopes.is_empty() {
        return Ok(());
    }
    let insert = Sql::new(
        tables,
        "INSERT INTO {posta}outbox
             (message_id, message_type, version, ordering_key, headers, content_type, payload, slot)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    );
    let envelopes = envelopes.to_vec();
    on_thread(connection, "insert into the outbox", move |connection| {
        if let [envelope] = &envelopes[..] {
            return insert_one(connection, &insert, envelope);
        }
        connection.batch_execute("SAVEPOINT posta_insert")?;
        let inserted = envelopes
            .iter()
            .try_for_each(|envelope| insert_one(connection, &insert, envelope));
        if inserted.is_err() {
            connection.batch_execute("ROLLBACK TO posta_insert")?;
        }
        connection.batch_execute("RELEASE posta_insert")?;
        inserted
    })
    .await
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
