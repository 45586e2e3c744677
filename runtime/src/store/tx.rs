use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use time::OffsetDateTime;

use super::{Database, Due, NewScheduled, StoreError};
use crate::message::{Envelope, Message, MessageId};
use crate::outbox::{Context, EnqueueError, Outbox};

/// An open transaction in the application's hands: a diesel connection, and the only way to
/// enqueue.
///
/// It dereferences to the database's connection, so it is passed to diesel as it is:
/// `.execute(tx).await?`. Messages that are enqueued or scheduled on it are encoded and checked at once and
/// written in one insert just before the commit, after all statements of the transaction.
pub struct Tx<'t, D: Database> {
    connection: &'t mut D::Connection,
    outbox: &'t Outbox<D>,
    context: Context,
    enqueued: Vec<Envelope>,
    scheduled: Vec<NewScheduled>,
}

/// A dispatcher looks for scheduled messages at least this often, whatever its configuration: one
/// that is due later than this needs no nudge.
const SOON: Duration = Duration::from_secs(60);

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
            scheduled: Vec::new(),
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

    /// Schedules a message: if this transaction commits, it is enqueued when so much time has passed
    /// since it was written (just before the commit), by the database's clock. At most ten years ([`crate::outbox::DELAY_MAX`]).
    ///
    /// It takes its place in its key's order when it is due, behind what was enqueued before. Trace
    /// context and causation are those of this call, as for [`Tx::enqueue`].
    ///
    /// # Errors
    /// As [`Tx::enqueue`], and when the delay is too long: before any SQL, so the transaction stays
    /// usable.
    pub fn enqueue_after<M: Message>(
        &mut self,
        message: &M,
        delay: Duration,
    ) -> Result<MessageId, EnqueueError> {
        self.schedule(message, Due::After(delay))
    }

    /// As [`Tx::enqueue_after`], at a time by the database's clock. One that has passed is due at
    /// once.
    ///
    /// # Errors
    /// As [`Tx::enqueue_after`].
    pub fn enqueue_at<M: Message>(
        &mut self,
        message: &M,
        at: OffsetDateTime,
    ) -> Result<MessageId, EnqueueError> {
        self.schedule(message, Due::At(at))
    }

    fn schedule<M: Message>(&mut self, message: &M, due: Due) -> Result<MessageId, EnqueueError> {
        let scheduled = self.outbox.scheduled(message, &self.context, due)?;
        let id = scheduled.envelope.id;
        self.scheduled.push(scheduled);
        Ok(id)
    }

    /// As [`Tx::enqueue_after`] and [`Tx::enqueue_at`], of an envelope that the application made
    /// itself.
    ///
    /// # Errors
    /// When its payload is larger than configured, or its time is not allowed; the transaction
    /// stays usable.
    pub fn schedule_envelope(
        &mut self,
        envelope: Envelope,
        due: Due,
    ) -> Result<MessageId, EnqueueError> {
        let scheduled = self.outbox.scheduled_envelope(envelope, due)?;
        let id = scheduled.envelope.id;
        self.scheduled.push(scheduled);
        Ok(id)
    }

    /// Takes a scheduled message back: if this transaction commits, it is never sent. Also one that
    /// this same transaction has scheduled.
    ///
    /// `false`: there is none of this id, or it is due already and on its way, or was cancelled
    /// before. Either the cancelling or the sending happens, never both and never neither; it may
    /// wait for a dispatcher that is about to commit.
    ///
    /// # Cancel safety
    /// As the connection's own: a statement whose future is dropped may have run.
    ///
    /// # Errors
    /// When the database refuses or is gone.
    pub async fn cancel_scheduled(&mut self, id: MessageId) -> Result<bool, StoreError> {
        let buffered = self.scheduled.len();
        self.scheduled
            .retain(|scheduled| scheduled.envelope.id != id);
        if self.scheduled.len() < buffered {
            return Ok(true);
        }
        D::cancel_scheduled(self.connection, self.outbox.tables(), id).await
    }

    /// Sets which message what is enqueued next follows from.
    pub(crate) fn set_context(&mut self, context: Context) {
        self.context = context;
    }

    /// Writes what was enqueued so far, in one insert, and what was scheduled, in another; returns
    /// how many of these messages a dispatcher should hear of when they are committed.
    pub(crate) async fn flush(&mut self) -> Result<usize, StoreError> {
        let enqueued = std::mem::take(&mut self.enqueued);
        D::insert_outbox(self.connection, self.outbox.tables(), &enqueued).await?;
        let scheduled = std::mem::take(&mut self.scheduled);
        D::insert_scheduled(self.connection, self.outbox.tables(), &scheduled).await?;
        let soon = scheduled.iter().filter(|it| match it.due {
            Due::After(delay) => delay < SOON,
            Due::At(_) => true,
        });
        Ok(enqueued.len() + soon.count())
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
            .field("scheduled", &self.scheduled.len())
            .finish_non_exhaustive()
    }
}
