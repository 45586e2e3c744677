use std::borrow::Cow;
use std::marker::PhantomData;

use super::{Context, EnqueueError};
use crate::message::limits::{PAYLOAD_BYTES_DEFAULT, PAYLOAD_BYTES_MAX};
use crate::message::{Envelope, EnvelopeError, Message, MessageId};
use crate::store::{Database, Tables};
use crate::telemetry::{self, Client};

/// The enqueueing side of the outbox, for transactions that the application begins itself.
///
/// Inside [`crate::Posta::transaction`] and inside handlers use [`crate::Tx::enqueue`] instead.
/// There is no way to publish to a broker from application code: a message is always a row first.
///
/// ```no_run
/// # use posta::{Message, Outbox, Sqlite};
/// # use diesel_async::AsyncConnection;
/// # #[derive(serde::Serialize, serde::Deserialize, Message)]
/// # #[message(type = "order.placed", version = 1)]
/// # struct OrderPlaced {}
/// # async fn place(connection: &mut <Sqlite as posta::Database>::Connection) -> anyhow::Result<()> {
/// let outbox = Outbox::<Sqlite>::default();
/// connection.transaction(async |connection| {
///     // … the application's own statements …
///     outbox.enqueue(connection, &OrderPlaced {}).await?;
///     Ok::<_, anyhow::Error>(())
/// }).await
/// # }
/// ```
///
/// Rows enqueued so are found by the dispatcher's polling; [`crate::Posta::nudge`] after the commit
/// makes it look at once.
pub struct Outbox<D> {
    tables: Tables,
    payload_bytes_max: usize,
    client: Client,
    database: PhantomData<fn() -> D>,
}

impl<D: Database> Outbox<D> {
    /// The outbox in these tables, with the default limit of 1 MiB a payload.
    #[must_use]
    pub fn new(tables: Tables) -> Self {
        Self {
            tables,
            payload_bytes_max: PAYLOAD_BYTES_DEFAULT,
            client: Client::default(),
            database: PhantomData,
        }
    }

    /// The same with another limit on a payload's size in bytes; more than 16 MiB counts as 16 MiB.
    #[must_use]
    pub fn payload_bytes_max(mut self, bytes: usize) -> Self {
        self.payload_bytes_max = bytes.min(PAYLOAD_BYTES_MAX);
        self
    }

    /// The same with what spans say of the broker.
    pub(crate) fn client(mut self, client: Client) -> Self {
        self.client = client;
        self
    }

    /// The names of Posta's tables.
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Writes a message into the outbox, in the transaction that is open on the connection.
    ///
    /// # Cancel safety
    /// As the connection's own: a statement whose future is dropped may have run.
    ///
    /// # Errors
    /// [`EnqueueError::Message`] before any SQL; [`EnqueueError::Store`] when the database refuses.
    pub async fn enqueue<M: Message>(
        &self,
        connection: &mut D::Connection,
        message: &M,
    ) -> Result<MessageId, EnqueueError> {
        let envelope = self.envelope(message, &Context::default())?;
        let id = envelope.id;
        self.enqueue_envelopes(connection, &[envelope]).await?;
        Ok(id)
    }

    /// Writes messages of one type into the outbox in one insert, in the order given. All or none.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`]; the first message that breaks a limit stops all before any SQL.
    pub async fn enqueue_all<'m, M: Message>(
        &self,
        connection: &mut D::Connection,
        messages: impl IntoIterator<Item = &'m M>,
    ) -> Result<Vec<MessageId>, EnqueueError> {
        let envelopes: Vec<Envelope> = messages
            .into_iter()
            .map(|message| self.envelope(message, &Context::default()))
            .collect::<Result<_, _>>()?;
        self.enqueue_envelopes(connection, &envelopes).await?;
        Ok(envelopes.iter().map(|envelope| envelope.id).collect())
    }

    /// Writes envelopes, of any types, into the outbox in one insert, in the order given. All or
    /// none.
    ///
    /// # Errors
    /// As [`Outbox::enqueue`].
    pub async fn enqueue_envelopes(
        &self,
        connection: &mut D::Connection,
        envelopes: &[Envelope],
    ) -> Result<(), EnqueueError> {
        let envelopes = self.prepare(envelopes)?;
        D::insert_outbox(connection, &self.tables, &envelopes).await?;
        Ok(())
    }

    /// Encodes a message and checks every limit.
    pub(crate) fn envelope<M: Message>(
        &self,
        message: &M,
        context: &Context,
    ) -> Result<Envelope, EnqueueError> {
        let refused = |source| EnqueueError::Message {
            message_type: M::TYPE.to_owned(),
            source,
        };
        telemetry::create(&self.client, M::TYPE, || {
            let mut envelope = Envelope::of(message).map_err(refused)?;
            context.write(&mut envelope).map_err(refused)?;
            self.check(&envelope)?;
            Ok(envelope)
        })
    }

    /// Checks envelopes that the application made itself, and gives those without one a trace
    /// context.
    pub(crate) fn prepare<'e>(
        &self,
        envelopes: &'e [Envelope],
    ) -> Result<Cow<'e, [Envelope]>, EnqueueError> {
        envelopes
            .iter()
            .try_for_each(|envelope| self.check(envelope))?;
        Ok(telemetry::adopt_all(&self.client, envelopes))
    }

    /// As [`Outbox::prepare`] for one.
    pub(crate) fn prepare_one(&self, envelope: Envelope) -> Result<Envelope, EnqueueError> {
        self.check(&envelope)?;
        Ok(telemetry::adopt(&self.client, envelope))
    }

    /// Checks the limit that the configuration sets.
    fn check(&self, envelope: &Envelope) -> Result<(), EnqueueError> {
        let bytes = envelope.payload.len();
        if bytes <= self.payload_bytes_max {
            return Ok(());
        }
        Err(EnqueueError::Message {
            message_type: envelope.message_type.to_string(),
            source: EnvelopeError::too_long("payload", bytes, self.payload_bytes_max),
        })
    }
}

impl<D: Database> Default for Outbox<D> {
    fn default() -> Self {
        Self::new(Tables::default())
    }
}

impl<D> Clone for Outbox<D> {
    fn clone(&self) -> Self {
        Self {
            tables: self.tables.clone(),
            payload_bytes_max: self.payload_bytes_max,
            client: self.client.clone(),
            database: PhantomData,
        }
    }
}

impl<D> std::fmt::Debug for Outbox<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outbox")
            .field("tables", &self.tables)
            .field("payload_bytes_max", &self.payload_bytes_max)
            .finish()
    }
}
