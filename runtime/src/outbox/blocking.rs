//! Enqueueing on diesel's blocking `PgConnection`: many diesel services are not async.

use diesel::{PgConnection, RunQueryDsl};

use super::{Context, EnqueueError, Outbox};
use crate::message::{Envelope, Message, MessageId};
use crate::store::postgres::{Postgres, enqueue, refused};

/// The enqueueing side of the outbox, for transactions on diesel's blocking `PgConnection`.
///
/// The same statement, checks and limits as [`Outbox`]; only the connection differs. (diesel's blocking connection needs libpq on the
/// machine: feature `postgres-blocking`.)
///
/// ```no_run
/// # use diesel::Connection;
/// # use posta::{Message, KeyWriter, Json};
/// use posta::outbox::blocking::BlockingOutbox;
///
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct OrderPlaced {}
/// # impl Message for OrderPlaced {
/// #     const TYPE: &'static str = "order.placed";
/// #     const VERSION: u32 = 1;
/// #     type Codec = Json;
/// #     fn write_key(&self, _: &mut KeyWriter) {}
/// # }
/// # fn place(connection: &mut diesel::PgConnection) -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = BlockingOutbox::default();
/// connection.transaction(|connection| {
///     // … the application's own statements …
///     outbox.enqueue(connection, &OrderPlaced {})?;
///     Ok(())
/// })
/// # }
/// ```
///
/// Outside a transaction the row is committed at once, by itself: there is then nothing that it is atomic with. Rows enqueued so
/// are found by the dispatcher's polling.
#[derive(Clone, Debug, Default)]
pub struct BlockingOutbox {
    outbox: Outbox<Postgres>,
}

impl BlockingOutbox {
    /// The outbox with the tables and the limit of an [`Outbox`].
    #[must_use]
    pub fn new(outbox: Outbox<Postgres>) -> Self {
        Self { outbox }
    }

    /// Writes a message into the outbox, in the transaction that is open on the connection: it is dispatched if and only if that
    /// transaction commits (G1).
    ///
    /// # Errors
    /// [`EnqueueError::Message`] before any SQL, the transaction stays usable; [`EnqueueError::Store`] when the database refuses.
    pub fn enqueue<M: Message>(
        &self,
        connection: &mut PgConnection,
        message: &M,
    ) -> Result<MessageId, EnqueueError> {
        let envelope = self.outbox.envelope(message, &Context::default())?;
        let id = envelope.id;
        self.enqueue_envelopes(connection, &[envelope])?;
        Ok(id)
    }

    /// Writes messages of one type into the outbox in one insert, in the order given. All or none.
    ///
    /// # Errors
    /// As [`BlockingOutbox::enqueue`]; the first message that breaks a limit stops all before any SQL.
    pub fn enqueue_all<'m, M: Message>(
        &self,
        connection: &mut PgConnection,
        messages: impl IntoIterator<Item = &'m M>,
    ) -> Result<Vec<MessageId>, EnqueueError> {
        let envelopes: Vec<Envelope> = messages
            .into_iter()
            .map(|message| self.outbox.envelope(message, &Context::default()))
            .collect::<Result<_, _>>()?;
        self.enqueue_envelopes(connection, &envelopes)?;
        Ok(envelopes.iter().map(|envelope| envelope.id).collect())
    }

    /// Writes envelopes, of any types, into the outbox in one insert, in the order given. All or none.
    ///
    /// # Errors
    /// As [`BlockingOutbox::enqueue`].
    pub fn enqueue_envelopes(
        &self,
        connection: &mut PgConnection,
        envelopes: &[Envelope],
    ) -> Result<(), EnqueueError> {
        let envelopes = self.outbox.prepare(envelopes)?;
        if envelopes.is_empty() {
            return Ok(());
        }
        let sql = enqueue::sql(self.outbox.tables());
        enqueue::statement(&sql, &envelopes)
            .execute(connection)
            .map_err(|error| refused(enqueue::OPERATION, error))?;
        Ok(())
    }
}

impl From<Outbox<Postgres>> for BlockingOutbox {
    fn from(outbox: Outbox<Postgres>) -> Self {
        Self::new(outbox)
    }
}
