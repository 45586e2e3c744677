use std::fmt;
use std::ops::{Deref, DerefMut};

use super::Database;
use crate::message::{Envelope, Message, MessageId};
use crate::outbox::{Context, EnqueueError, Outbox};

/// An open transaction in the application's hands: a diesel connection, and the only way to
/// enqueue.
///
/// It dereferences to the database's connection, so it is passed to diesel as it is:
/// `.execute(tx).await?`. Messages that are enqueued on it are encoded and checked at once and
/// written in one insert just before the commit, after all statements of the transaction.
pub struct Tx<'t, D: Database> {
    connection: &'t mut D::Connection,
    outbox: &'t Outbox<D>,
    context: Context,
    enqueued: Vec<Envelope>,
}

impl<'t, D: Database> Tx<'t, D> {
    pub(crate) fn new(
        connection: &'t mut D::Connection,
        outbox: &'t Outbox<D>,
        context: Context,
    ) -> Self {
        Self {
            connection,
            outbox,
            context,
            enqueued: Vec::new(),
        }
    }

    /// Enqueues a message: it is dispatched if and only if this transaction commits (G1).
    ///
    /// Messages with one ordering key take effect in the order of these calls. The trace context of
    /// the current span travels along; inside a handler the handled message's id is the causation
    /// id.
    ///
    /// # Errors
    /// When the message is too large, too long in a part, or has no encoding: before any SQL, so
    /// the transaction stays usable.
    pub fn enqueue<M: Message>(&mut self, message: &M) -> Result<MessageId, EnqueueError> {
        let envelope = self.outbox.envelope(message, &self.context)?;
        let id = envelope.id;
        self.enqueued.push(envelope);
        Ok(id)
    }

    /// Enqueues an envelope that the application made itself (its own id, headers, or bytes).
    ///
    /// # Errors
    /// When its payload is larger than configured; the transaction stays usable.
    pub fn enqueue_envelope(&mut self, envelope: Envelope) -> Result<MessageId, EnqueueError> {
        let envelope = self.outbox.prepare_one(envelope)?;
        let id = envelope.id;
        self.enqueued.push(envelope);
        Ok(id)
    }

    /// Sets which message what is enqueued next follows from.
    pub(crate) fn set_context(&mut self, context: Context) {
        self.context = context;
    }

    /// Writes what was enqueued so far, in one insert; returns how many messages.
    pub(crate) async fn flush(&mut self) -> Result<usize, super::StoreError> {
        let enqueued = std::mem::take(&mut self.enqueued);
        D::insert_outbox(self.connection, self.outbox.tables(), &enqueued).await?;
        Ok(enqueued.len())
    }
}

impl<D: Database> Deref for Tx<'_, D> {
    type Target = D::Connection;

    fn deref(&self) -> &Self::Target {
        self.connection
    }
}

impl<D: Database> DerefMut for Tx<'_, D> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.connection
    }
}

impl<D: Database> fmt::Debug for Tx<'_, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx")
            .field("enqueued", &self.enqueued.len())
            .finish_non_exhaustive()
    }
}
