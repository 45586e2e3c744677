use std::collections::HashSet;
use std::error::Error;
use std::time::Duration;

use super::partition::Partition;
use super::{Failure, HandleError};
use crate::broker::{BrokerError, Delivery, DeliveryTag, Subscription};
use crate::dead_letter::{NewDeadLetter, Origin};
use crate::message::{Envelope, MessageId, OrderingKey, RawMessage, Slot};
use crate::outbox::{Context, EnqueueError};
use crate::retry::Backoff;
use crate::store::{
    Admission, Database, DeadLetterStore, Fence, InboxStore, NewHold, RetryStore, Session, Store,
    StoreError, StoreErrorKind, Tx,
};
use crate::supervision::{crash_point, error_chain};
use crate::telemetry::{self, Process, Processed};

/// How often a handler is called again that the database disturbed, before that counts as its
/// failure: the database that it complains of may be another than ours, or the deadlock its own.
pub(super) const DISTURBANCES_MAX: u32 = 10;

/// Between calls of a handler that the database disturbed.
pub(super) const CONTENTION_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(5), Duration::from_millis(500));

/// What became of deliveries that were handled in one transaction.
pub(super) enum Handled {
    /// Committed and acknowledged; new entries of the retry table are due after this long, if there
    /// are any.
    Committed { next_retry: Option<Duration> },
    /// The partition belongs to somebody else: nothing was changed, nothing may be acknowledged.
    LeaseLost,
    /// A handler failed: rolled back.
    Failed(HandleError),
}

/// Why deliveries could not be handled: nobody's attempt.
pub(super) enum Interruption {
    /// The database is not there, or not as it should be: wait, then the same deliveries again.
    Database(StoreError),
    /// The channel is gone: what was not acknowledged is delivered again.
    Broker(BrokerError),
}

impl From<StoreError> for Interruption {
    fn from(error: StoreError) -> Self {
        Self::Database(error)
    }
}

/// What a batch adds to the tables beside the handlers' effects.
#[derive(Default)]
struct Aside {
    holds: Vec<NewHold>,
    letters: Vec<NewDeadLetter>,
    handled: u64,
    processed: Processed,
    duplicates: u64,
}

impl<D: Database> Partition<D> {
    /// Handles deliveries together in one transaction; if a handler fails, one by one, each in its
    /// own. Returns whether the lease still holds, and when the retry table is due if this batch
    /// added to it.
    pub(super) async fn handle(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
    ) -> Result<Handled, Interruption> {
        match self
            .handle_patiently(fence, subscription, deliveries)
            .await?
        {
            Handled::Failed(_) if deliveries.len() > 1 => {}
            Handled::Failed(error) => {
                return self
                    .hold_failed(fence, subscription, &deliveries[0], &error)
                    .await;
            }
            done => return Ok(done),
        }
        let mut soonest = None;
        for delivery in deliveries {
            let one = std::slice::from_ref(delivery);
            let handled = match self.handle_patiently(fence, subscription, one).await? {
                Handled::Failed(error) => {
                    self.hold_failed(fence, subscription, delivery, &error)
                        .await?
                }
                handled => handled,
            };
            match handled {
                Handled::Committed { next_retry } => soonest = earlier(soonest, next_retry),
                lost_or_failed => return Ok(lost_or_failed),
            }
        }
        Ok(Handled::Committed {
            next_retry: soonest,
        })
    }

    /// Handles deliveries in one transaction; again, a bounded number of times, while the database
    /// gets in the way: that is nobody's attempt.
    async fn handle_patiently(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
    ) -> Result<Handled, Interruption> {
        let mut tries = 0;
        loop {
            let outcome = self.handle_together(fence, subscription, deliveries).await;
            let disturbed = match &outcome {
                Ok(Handled::Failed(error)) => is_disturbance::<D>(error),
                Err(Interruption::Database(error)) => error.kind() == StoreErrorKind::Contention,
                _ => false,
            };
            if disturbed && tries < DISTURBANCES_MAX {
                tries += 1;
                tokio::time::sleep(CONTENTION_BACKOFF.delay(tries)).await;
                continue;
            }
            return match outcome {
                // What the handlers wrote was refused at the end, by a deferred constraint for
                // example: that is theirs.
                Err(Interruption::Database(error)) if !is_outage(error.kind()) => {
                    Ok(Handled::Failed(HandleError::Failed(Failure::new(error))))
                }
                outcome => outcome,
            };
        }
    }

    async fn handle_together(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
    ) -> Result<Handled, Interruption> {
        let mut session = self.store.begin().await?;
        let (mut fresh, mut held) = match self.admit(&mut session, fence, deliveries).await? {
            Admission::LeaseLost => {
                session.rollback().await;
                return Ok(Handled::LeaseLost);
            }
            Admission::Admitted { fresh, held } => (fresh, held),
        };
        crash_point!("consume.admitted");
        let mut aside = Aside::default();
        let mut tx = Tx::new(&mut *session, &self.outbox, Context::default());
        for delivery in deliveries {
            let handled = self.handle_one(&mut tx, delivery, &mut fresh, &mut held, &mut aside);
            if let Err(error) = handled.await {
                session.rollback().await;
                return Ok(Handled::Failed(error));
            }
        }
        crash_point!("consume.handled");
        let enqueued = tx.flush().await?;
        let next_retry = self.put_aside(&mut session, &aside).await?;
        let tags: Vec<DeliveryTag> = deliveries.iter().map(|delivery| delivery.tag).collect();
        subscription.acknowledge_within(&mut session, &tags).await?;
        session.commit().await?;
        aside.processed.committed();
        crash_point!("consume.committed");
        if enqueued > 0 {
            self.enqueued.call();
        }
        self.counters.add_handled(
            aside.handled,
            aside.duplicates,
            aside.holds.len(),
            aside.letters.len(),
        );
        self.acknowledge(subscription, deliveries, &tags).await?;
        crash_point!("consume.acknowledged");
        Ok(Handled::Committed { next_retry })
    }

    async fn admit(
        &self,
        session: &mut Session<D>,
        fence: &Fence,
        deliveries: &[Delivery],
    ) -> Result<Admission, StoreError> {
        let ids: Vec<MessageId> = deliveries.iter().filter_map(message_id).collect();
        let envelopes = deliveries
            .iter()
            .filter_map(|delivery| delivery.message.as_ref().ok());
        let keys: HashSet<OrderingKey> = envelopes
            .filter_map(|envelope| envelope.key.clone())
            .collect();
        let keys: Vec<OrderingKey> = keys.into_iter().collect();
        self.store
            .admit(session, &self.queue.consumer, fence, &ids, &keys)
            .await
    }

    /// Handles one delivery of the batch, or notes what is to become of it instead.
    async fn handle_one(
        &self,
        tx: &mut Tx<'_, D>,
        delivery: &Delivery,
        fresh: &mut HashSet<MessageId>,
        held: &mut HashSet<OrderingKey>,
        aside: &mut Aside,
    ) -> Result<(), HandleError> {
        // The first copy takes the id; any other, in this batch or another, is a duplicate.
        if message_id(delivery).is_some_and(|id| !fresh.remove(&id)) {
            aside.duplicates += 1;
            return Ok(());
        }
        let envelope = match &delivery.message {
            Ok(envelope) => envelope,
            Err(malformed) => {
                let (raw, reason) = ((*malformed.raw).clone(), malformed.reason.clone());
                aside.letters.push(self.letter(raw, "malformed", reason, 0));
                return Ok(());
            }
        };
        if envelope.key.as_ref().is_some_and(|key| held.contains(key)) {
            aside.holds.push(successor(envelope));
            return Ok(());
        }
        match self.call_handler(tx, envelope, 1).await {
            Ok(Called::Handled(process)) => {
                aside.handled += 1;
                aside.processed.push(process);
            }
            Ok(Called::NoHandler) => {
                let error = no_handler(envelope);
                held.extend(envelope.key.clone());
                aside.holds.push(self.failed_hold(envelope, error));
            }
            Err(HandleError::Decode(error)) => {
                let text = error_chain(&error);
                aside
                    .letters
                    .push(self.letter(envelope.clone().into(), "undecodable", text, 1));
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Runs the handler of the envelope's type, in the transaction.
    pub(super) async fn call_handler(
        &self,
        tx: &mut Tx<'_, D>,
        envelope: &Envelope,
        attempt: u32,
    ) -> Result<Called, HandleError> {
        let Some(handler) = self.handlers.get(envelope.message_type.as_str()) else {
            return Ok(Called::NoHandler);
        };
        tx.set_context(Context::handling(envelope));
        let process = Process::new(&self.client, &self.queue, envelope, attempt);
        let call = handler.handle(envelope, attempt, &self.state, tx);
        process.run(call).await?;
        Ok(Called::Handled(process))
    }

    async fn acknowledge(
        &self,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
        tags: &[DeliveryTag],
    ) -> Result<(), Interruption> {
        let acknowledge = subscription.acknowledge(tags);
        telemetry::settling(&self.client, &self.queue, deliveries, acknowledge)
            .await
            .map_err(Interruption::Broker)
    }

    /// Writes holds and dead letters; says when the first hold is due.
    async fn put_aside(
        &self,
        session: &mut Session<D>,
        aside: &Aside,
    ) -> Result<Option<Duration>, StoreError> {
        if !aside.holds.is_empty() {
            self.store
                .hold(session, &self.queue.consumer, &aside.holds)
                .await?;
        }
        if !aside.letters.is_empty() {
            self.store.bury(session, &aside.letters).await?;
        }
        Ok(aside.holds.iter().filter_map(|hold| hold.delay).min())
    }

    /// Puts a delivery whose handler failed into the retry table: with its inbox id, in one
    /// transaction, after which it is acknowledged.
    async fn hold_failed(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        delivery: &Delivery,
        error: &HandleError,
    ) -> Result<Handled, Interruption> {
        let Ok(envelope) = &delivery.message else {
            // A malformed delivery has no handler that could fail.
            return Ok(Handled::Committed { next_retry: None });
        };
        let text = error_chain(error);
        tracing::warn!(
            consumer = %self.queue.consumer,
            message_id = %envelope.id,
            message_type = %envelope.message_type,
            error = %text,
            "a handler failed; the message and its key wait for the next try"
        );
        let mut session = self.store.begin().await?;
        let one = std::slice::from_ref(delivery);
        let Admission::Admitted { fresh, .. } = self.admit(&mut session, fence, one).await? else {
            session.rollback().await;
            return Ok(Handled::LeaseLost);
        };
        let mut aside = Aside::default();
        if fresh.contains(&envelope.id) {
            aside.holds.push(self.failed_hold(envelope, text));
        }
        let next_retry = self.put_aside(&mut session, &aside).await?;
        subscription
            .acknowledge_within(&mut session, &[delivery.tag])
            .await?;
        session.commit().await?;
        crash_point!("consume.held");
        self.counters.add_handled(0, 0, aside.holds.len(), 0);
        self.acknowledge(subscription, one, &[delivery.tag]).await?;
        Ok(Handled::Committed { next_retry })
    }

    fn failed_hold(&self, envelope: &Envelope, error: String) -> NewHold {
        NewHold {
            envelope: envelope.clone(),
            slot: self.slot_of(envelope),
            attempts: 1,
            error: Some(error),
            delay: Some(self.backoff.delay(1)),
            parked: None,
        }
    }

    /// The slot under which a message waits. A foreign publisher routes one without a key as it
    /// likes; it is this partition's then.
    fn slot_of(&self, envelope: &Envelope) -> Slot {
        let slots = self.queue.slots();
        match envelope.slot() {
            slot if envelope.key.is_some() || slots.contains(&slot.number()) => slot,
            slot => Slot::new(*slots.start()).unwrap_or(slot),
        }
    }

    pub(super) fn letter(
        &self,
        message: RawMessage,
        reason: &'static str,
        error: String,
        attempts: u32,
    ) -> NewDeadLetter {
        let origin = Origin::Consumer(self.queue.consumer.clone());
        tracing::warn!(
            consumer = %self.queue.consumer,
            message_id = message.id.as_deref().unwrap_or_default(),
            message_type = message.message_type.as_deref().unwrap_or_default(),
            reason,
            %error,
            "a message is set aside as a dead letter"
        );
        NewDeadLetter {
            origin,
            message,
            reason,
            error,
            attempts,
            again: None,
            parked: false,
            discarded: false,
            slot: None,
            first_failed_at: None,
            fingerprint: String::new(),
        }
    }
}

/// What became of one call.
pub(super) enum Called {
    /// The handler said yes; whether it lasts, the transaction's end says.
    Handled(Process),
    NoHandler,
}

pub(super) fn no_handler(envelope: &Envelope) -> String {
    format!(
        "no handler for the message type {:?} in this process",
        envelope.message_type.as_str()
    )
}

/// The id of a delivery, as far as it has a valid one: a malformed message may.
fn message_id(delivery: &Delivery) -> Option<MessageId> {
    match &delivery.message {
        Ok(envelope) => Some(envelope.id),
        Err(malformed) => malformed.raw.id.as_deref()?.parse().ok(),
    }
}

fn successor(envelope: &Envelope) -> NewHold {
    NewHold {
        envelope: envelope.clone(),
        slot: envelope.slot(),
        attempts: 0,
        error: None,
        delay: None,
        parked: None,
    }
}

pub(super) fn earlier(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    [a, b].into_iter().flatten().min()
}

/// Whether the database is the problem, not what it was asked: wait for it.
pub(super) fn is_outage(kind: StoreErrorKind) -> bool {
    matches!(
        kind,
        StoreErrorKind::Unavailable | StoreErrorKind::Contention | StoreErrorKind::Schema
    )
}

/// Whether a handler's failure is in truth the database's, which may go away by itself: found
/// anywhere in the chain of errors.
pub(super) fn is_disturbance<D: Database>(error: &HandleError) -> bool {
    let HandleError::Failed(failure) = error else {
        return false;
    };
    let mut next: Option<&(dyn Error + 'static)> = Some(failure.source());
    while let Some(error) = next {
        let kind = if let Some(error) = error.downcast_ref::<diesel::result::Error>() {
            Some(D::classify(error))
        } else if let Some(EnqueueError::Store(error)) = error.downcast_ref::<EnqueueError>() {
            Some(error.kind())
        } else {
            error.downcast_ref::<StoreError>().map(StoreError::kind)
        };
        if matches!(
            kind,
            Some(StoreErrorKind::Unavailable | StoreErrorKind::Contention)
        ) {
            return true;
        }
        next = error.source();
    }
    false
}
