use std::time::Duration;

use time::OffsetDateTime;

use super::due::checked;
use super::{Context, EnqueueError, Outbox};
use crate::message::{Envelope, Message, MessageId};
use crate::store::{Database, Due, NewScheduled, StoreError};

impl<D: Database> Outbox<D> {
    /// Schedules a message, in the transaction that is open on the connection: if that commits, the
    /// message is enqueued by the dispatcher when so much time has passed since it was written,
    /// by the database's clock. At most ten years ([`super::DELAY_MAX`]).
    ///
    /// It takes its place in its key's order when it is due, behind what was enqueued before.
    ///
    /// # Cancel safety
    /// As the connection's own: a statement whose future is dropped may have run.
    ///
    /// # Errors
    /// [`EnqueueError::Message`] and [`EnqueueError::Due`] before any SQL; [`EnqueueError::Store`]
    /// when the database refuses.
    pub async fn enqueue_after<M: Message>(
        &self,
        connection: &mut D::Connection,
        message: &M,
        delay: Duration,
    ) -> Result<MessageId, EnqueueError> {
        let scheduled = self.scheduled(message, &Context::default(), Due::After(delay))?;
        self.write_scheduled(connection, scheduled).await
    }

    /// As [`Outbox::enqueue_after`], at a time by the database's clock. One that has passed is due
    /// at once.
    ///
    /// # Cancel safety
    /// As [`Outbox::enqueue_after`].
    ///
    /// # Errors
    /// As [`Outbox::enqueue_after`].
    pub async fn enqueue_at<M: Message>(
        &self,
        connection: &mut D::Connection,
        message: &M,
        at: OffsetDateTime,
    ) -> Result<MessageId, EnqueueError> {
        let scheduled = self.scheduled(message, &Context::default(), Due::At(at))?;
        self.write_scheduled(connection, scheduled).await
    }

    /// As [`Outbox::enqueue_after`], of an envelope that the application made itself.
    ///
    /// # Cancel safety
    /// As [`Outbox::enqueue_after`].
    ///
    /// # Errors
    /// As [`Outbox::enqueue_after`].
    pub async fn schedule_envelope(
        &self,
        connection: &mut D::Connection,
        envelope: Envelope,
        due: Due,
    ) -> Result<MessageId, EnqueueError> {
        let scheduled = self.scheduled_envelope(envelope, due)?;
        self.write_scheduled(connection, scheduled).await
    }

    /// Takes a scheduled message back, in the transaction that is open on the connection: if that
    /// commits, the message is never sent. `false`: there is none of this id, or it is due already
    /// and on its way, or was cancelled before. Either the cancelling or the sending happens, never
    /// both and never neither; it may wait for a dispatcher that is about to commit.
    ///
    /// # Cancel safety
    /// As the connection's own: a statement whose future is dropped may have run.
    ///
    /// # Errors
    /// When the database refuses or is gone.
    pub async fn cancel_scheduled(
        &self,
        connection: &mut D::Connection,
        id: MessageId,
    ) -> Result<bool, StoreError> {
        D::cancel_scheduled(connection, self.tables(), id).await
    }

    async fn write_scheduled(
        &self,
        connection: &mut D::Connection,
        scheduled: NewScheduled,
    ) -> Result<MessageId, EnqueueError> {
        let id = scheduled.envelope.id;
        D::insert_scheduled(connection, self.tables(), &[scheduled]).await?;
        Ok(id)
    }

    /// Encodes a message that is due later and checks every limit.
    pub(crate) fn scheduled<M: Message>(
        &self,
        message: &M,
        context: &Context,
        due: Due,
    ) -> Result<NewScheduled, EnqueueError> {
        let due = checked(due).map_err(|source| EnqueueError::due(M::TYPE, source))?;
        let envelope = self.envelope(message, context)?;
        Ok(NewScheduled { envelope, due })
    }

    /// As [`Outbox::scheduled`], of an envelope that the application made itself.
    pub(crate) fn scheduled_envelope(
        &self,
        envelope: Envelope,
        due: Due,
    ) -> Result<NewScheduled, EnqueueError> {
        let refused = |source| EnqueueError::due(envelope.message_type.as_str(), source);
        let due = checked(due).map_err(refused)?;
        let envelope = self.prepare_one(envelope)?;
        Ok(NewScheduled { envelope, due })
    }
}
