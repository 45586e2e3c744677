//! Enqueueing on diesel's blocking connections: many diesel services are not async.

use std::fmt;
use std::time::Duration;

use time::OffsetDateTime;

use super::{Context, EnqueueError, Outbox};
use crate::message::{Envelope, Message, MessageId};
#[cfg(feature = "postgres-blocking")]
use crate::store::Postgres;
#[cfg(feature = "sqlite")]
use crate::store::Sqlite;
use crate::store::{Database, Due, NewScheduled, StoreError, Tables};

/// A database on whose blocking connection messages can be enqueued: `Sqlite` always, `Postgres`
/// with the feature `postgres-blocking` (its blocking connection needs libpq on the machine).
pub trait BlockingDatabase: Database {
    /// diesel's blocking connection.
    type BlockingConnection: diesel::Connection;

    /// As [`Database::insert_outbox`], on a blocking connection.
    ///
    /// # Errors
    /// When the database refuses or is gone.
    fn insert_outbox_blocking(
        connection: &mut Self::BlockingConnection,
        tables: &Tables,
        envelopes: &[Envelope],
    ) -> Result<(), StoreError>;

    /// As [`Database::insert_scheduled`], on a blocking connection.
    ///
    /// # Errors
    /// When the database refuses or is gone.
    fn insert_scheduled_blocking(
        connection: &mut Self::BlockingConnection,
        tables: &Tables,
        scheduled: &[NewScheduled],
    ) -> Result<(), StoreError>;

    /// As [`Database::cancel_scheduled`], on a blocking connection.
    ///
    /// # Errors
    /// When the database refuses or is gone.
    fn cancel_scheduled_blocking(
        connection: &mut Self::BlockingConnection,
        tables: &Tables,
        id: MessageId,
    ) -> Result<bool, StoreError>;
}

#[cfg(feature = "postgres-blocking")]
impl BlockingDatabase for Postgres {
    type BlockingConnection = diesel::PgConnection;

    fn insert_outbox_blocking(
        connection: &mut diesel::PgConnection,
        tables: &Tables,
        envelopes: &[Envelope],
    ) -> Result<(), StoreError> {
        use crate::store::postgres::{enqueue, refused};
        if envelopes.is_empty() {
            return Ok(());
        }
        let sql = enqueue::sql(tables);
        diesel::RunQueryDsl::execute(enqueue::statement(&sql, envelopes), connection)
            .map_err(|error| refused(enqueue::OPERATION, error))?;
        Ok(())
    }

    fn insert_scheduled_blocking(
        connection: &mut diesel::PgConnection,
        tables: &Tables,
        scheduled: &[NewScheduled],
    ) -> Result<(), StoreError> {
        use crate::store::postgres::{refused, scheduled as schedule};
        if scheduled.is_empty() {
            return Ok(());
        }
        let sql = schedule::insert_sql(tables);
        diesel::RunQueryDsl::execute(schedule::insert(&sql, scheduled), connection)
            .map_err(|error| refused(schedule::INSERT, error))?;
        Ok(())
    }

    fn cancel_scheduled_blocking(
        connection: &mut diesel::PgConnection,
        tables: &Tables,
        id: MessageId,
    ) -> Result<bool, StoreError> {
        use crate::store::postgres::{refused, scheduled as schedule};
        let sql = schedule::cancel_sql(tables);
        diesel::RunQueryDsl::execute(schedule::cancel(&sql, id), connection)
            .map(|gone| gone == 1)
            .map_err(|error| refused(schedule::CANCEL, error))
    }
}

#[cfg(feature = "sqlite")]
impl BlockingDatabase for Sqlite {
    type BlockingConnection = diesel::SqliteConnection;

    fn insert_outbox_blocking(
        connection: &mut diesel::SqliteConnection,
        tables: &Tables,
        envelopes: &[Envelope],
    ) -> Result<(), StoreError> {
        crate::store::sqlite::enqueue::insert_blocking(connection, tables, envelopes)
    }

    fn insert_scheduled_blocking(
        connection: &mut diesel::SqliteConnection,
        tables: &Tables,
        scheduled: &[NewScheduled],
    ) -> Result<(), StoreError> {
        crate::store::sqlite::scheduled::insert_blocking(connection, tables, scheduled)
    }

    fn cancel_scheduled_blocking(
        connection: &mut diesel::SqliteConnection,
        tables: &Tables,
        id: MessageId,
    ) -> Result<bool, StoreError> {
        crate::store::sqlite::scheduled::cancel_blocking(connection, tables, id)
    }
}

/// The enqueueing side of the outbox, for transactions on diesel's blocking `PgConnection` or
/// `SqliteConnection`.
///
/// The same statement, checks and limits as [`Outbox`]; only the connection differs. It also serves
/// inside the `spawn_blocking` of a diesel-async connection to SQLite of whatever type.
///
/// ```no_run
/// # use diesel::Connection;
/// # use posta::{Message, Sqlite};
/// use posta::outbox::blocking::BlockingOutbox;
///
/// # #[derive(serde::Serialize, serde::Deserialize, Message)]
/// # #[message(type = "order.placed", version = 1)]
/// # struct OrderPlaced {}
/// # fn place(connection: &mut diesel::SqliteConnection) -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = BlockingOutbox::<Sqlite>::default();
/// connection.transaction(|connection| {
///     // … the application's own statements …
///     outbox.enqueue(connection, &OrderPlaced {})?;
///     Ok(())
/// })
/// # }
/// ```
///
/// Outside a transaction the row is committed at once, by itself: there is then nothing that it is
/// atomic with. Rows enqueued so are found by the dispatcher's polling.
pub struct BlockingOutbox<D> {
    outbox: Outbox<D>,
}

impl<D: BlockingDatabase> BlockingOutbox<D> {
    /// The outbox with the tables and the limit of an [`Outbox`].
    #[must_use]
    pub fn new(outbox: Outbox<D>) -> Self {
        Self { outbox }
    }

    /// Writes a message into the outbox, in the transaction that is open on the connection: it is
    /// dispatched if and only if that transaction commits (G1).
    ///
    /// # Errors
    /// [`EnqueueError::Message`] before any SQL, the transaction stays usable;
    /// [`EnqueueError::Store`] when the database refuses.
    pub fn enqueue<M: Message>(
        &self,
        connection: &mut D::BlockingConnection,
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
    /// As [`BlockingOutbox::enqueue`]; the first message that breaks a limit stops all before any
    /// SQL.
    pub fn enqueue_all<'m, M: Message>(
        &self,
        connection: &mut D::BlockingConnection,
        messages: impl IntoIterator<Item = &'m M>,
    ) -> Result<Vec<MessageId>, EnqueueError> {
        let envelopes: Vec<Envelope> = messages
            .into_iter()
            .map(|message| self.outbox.envelope(message, &Context::default()))
            .collect::<Result<_, _>>()?;
        self.enqueue_envelopes(connection, &envelopes)?;
        Ok(envelopes.iter().map(|envelope| envelope.id).collect())
    }

    /// Writes envelopes, of any types, into the outbox in one insert, in the order given. All or
    /// none.
    ///
    /// # Errors
    /// As [`BlockingOutbox::enqueue`].
    pub fn enqueue_envelopes(
        &self,
        connection: &mut D::BlockingConnection,
        envelopes: &[Envelope],
    ) -> Result<(), EnqueueError> {
        let envelopes = self.outbox.prepare(envelopes)?;
        D::insert_outbox_blocking(connection, self.outbox.tables(), &envelopes)?;
        Ok(())
    }

    /// Schedules a message, in the transaction that is open on the connection; see
    /// [`Outbox::enqueue_after`].
    ///
    /// # Errors
    /// [`EnqueueError::Message`] and [`EnqueueError::Due`] before any SQL, the transaction stays
    /// usable; [`EnqueueError::Store`] when the database refuses.
    pub fn enqueue_after<M: Message>(
        &self,
        connection: &mut D::BlockingConnection,
        message: &M,
        delay: Duration,
    ) -> Result<MessageId, EnqueueError> {
        self.schedule(connection, message, Due::After(delay))
    }

    /// As [`BlockingOutbox::enqueue_after`], at a time by the database's clock; see
    /// [`Outbox::enqueue_at`].
    ///
    /// # Errors
    /// As [`BlockingOutbox::enqueue_after`].
    pub fn enqueue_at<M: Message>(
        &self,
        connection: &mut D::BlockingConnection,
        message: &M,
        at: OffsetDateTime,
    ) -> Result<MessageId, EnqueueError> {
        self.schedule(connection, message, Due::At(at))
    }

    fn schedule<M: Message>(
        &self,
        connection: &mut D::BlockingConnection,
        message: &M,
        due: Due,
    ) -> Result<MessageId, EnqueueError> {
        let scheduled = self.outbox.scheduled(message, &Context::default(), due)?;
        let id = scheduled.envelope.id;
        D::insert_scheduled_blocking(connection, self.outbox.tables(), &[scheduled])?;
        Ok(id)
    }

    /// Takes a scheduled message back, in the transaction that is open on the connection; see
    /// [`Outbox::cancel_scheduled`].
    ///
    /// # Errors
    /// When the database refuses or is gone.
    pub fn cancel_scheduled(
        &self,
        connection: &mut D::BlockingConnection,
        id: MessageId,
    ) -> Result<bool, StoreError> {
        D::cancel_scheduled_blocking(connection, self.outbox.tables(), id)
    }
}

impl<D: BlockingDatabase> From<Outbox<D>> for BlockingOutbox<D> {
    fn from(outbox: Outbox<D>) -> Self {
        Self::new(outbox)
    }
}

impl<D: BlockingDatabase> Default for BlockingOutbox<D> {
    fn default() -> Self {
        Self::new(Outbox::default())
    }
}

impl<D> Clone for BlockingOutbox<D> {
    fn clone(&self) -> Self {
        Self {
            outbox: self.outbox.clone(),
        }
    }
}

impl<D> fmt::Debug for BlockingOutbox<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BlockingOutbox").field(&self.outbox).finish()
    }
}
