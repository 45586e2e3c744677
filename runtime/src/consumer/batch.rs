use std::collections::HashSet;
use std::time::Duration;

use super::HandleError;
use super::aside::{Aside, Death};
use super::call::undo;
use super::disturbance::{Interruption, Trouble, patiently};
use super::overflow::Overflow;
use super::partition::Partition;
use super::parts::Parts;
use crate::broker::{BrokerError, Delivery, DeliveryTag, Subscription};
use crate::dead_letter::Reason;
use crate::message::{MessageId, OrderingKey};
use crate::outbox::Context;
use crate::store::{Admission, Database, Fence, InboxStore, Session, Store, StoreError, Tx};
use crate::supervision::broken::{self, Mistake};
use crate::supervision::{crash_point, error_chain};
use crate::telemetry::{self, Processed};

/// What became of deliveries.
#[must_use]
pub(super) enum Taken {
    /// Committed and acknowledged; new entries of the retry table are due after this long, if there
    /// are any.
    Committed { next_retry: Option<Duration> },
    /// The partition belongs to somebody else: nothing was changed, nothing may be acknowledged.
    LeaseLost,
    /// Too much waits behind a key already: nothing was changed, nothing may be acknowledged.
    Overflow(Overflow),
}

/// What one transaction of deliveries has come to so far.
struct Open {
    /// Ids that are not taken yet.
    fresh: HashSet<MessageId>,
    /// Keys on hold, those that this transaction puts on hold among them.
    held: HashSet<OrderingKey>,
    aside: Aside,
    handled: u64,
    processed: Processed,
    duplicates: u64,
}

impl Open {
    fn new(fresh: HashSet<MessageId>, held: HashSet<OrderingKey>) -> Self {
        Self {
            fresh,
            held,
            aside: Aside::default(),
            handled: 0,
            processed: Processed::default(),
            duplicates: 0,
        }
    }
}

impl<D: Database> Partition<D> {
    /// Handles deliveries together in one transaction. If one fails, those before it are handled
    /// again without it, then it alone, then what comes after it: a failure costs its own batch a few
    /// transactions, not one for each message.
    ///
    /// With others in its transaction a message has not failed for itself yet: what they did may be
    /// what it failed of.
    pub(super) async fn handle(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
    ) -> Result<Taken, Interruption> {
        let (mut soonest, mut rest) = (None, deliveries);
        let mut parts = Parts::All;
        while !rest.is_empty() {
            let (part, after) = rest.split_at(parts.next(rest.len()));
            // Of a failure that is nobody's in particular, half of them may be free.
            let mut failed = part.len() / 2;
            let handled = self
                .handle_together(fence, subscription, part, 1, &mut failed)
                .await?;
            let handled = match (handled, part) {
                (Ok(handled), _) => handled,
                (Err(error), [alone]) => {
                    self.handle_alone(fence, subscription, alone, Some(error))
                        .await?
                }
                (Err(_), _) => {
                    parts = Parts::around(failed);
                    continue;
                }
            };
            match handled {
                Taken::Committed { next_retry } => soonest = earlier(soonest, next_retry),
                stopped => return Ok(stopped),
            }
            rest = after;
        }
        Ok(Taken::Committed {
            next_retry: soonest,
        })
    }

    /// Handles deliveries in one transaction, patient with the database; the inner error is a
    /// handler's failure, and nothing has changed. If it is one delivery's, `failed` says whose.
    pub(super) async fn handle_together(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
        attempt: u32,
        failed: &mut usize,
    ) -> Result<Result<Taken, HandleError>, Interruption> {
        let nobodys = *failed;
        patiently::<D, _>(async || {
            *failed = nobodys;
            self.handle_once(fence, subscription, deliveries, attempt, failed)
                .await
        })
        .await
    }

    async fn handle_once(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
        attempt: u32,
        failed: &mut usize,
    ) -> Result<Taken, Trouble> {
        let mut session = self.store.begin().await?;
        let mut open = match self.admit(&mut session, fence, deliveries).await? {
            Admission::LeaseLost => {
                session.rollback().await;
                return Ok(Taken::LeaseLost);
            }
            Admission::Admitted { fresh, held } => Open::new(fresh, held),
        };
        crash_point!("consume.admitted");
        if broken::makes(Mistake::Acknowledge) {
            subscription.acknowledge(&tags(deliveries)).await?;
        }
        if let Some(overflow) = self.overflow(&mut session, &open.held).await? {
            session.rollback().await;
            return Ok(Taken::Overflow(overflow));
        }
        let mut tx = Tx::new(&mut *session, &self.outbox, Context::default());
        for (index, delivery) in deliveries.iter().enumerate() {
            let handled = self.handle_one(&mut tx, delivery, attempt, &mut open).await;
            if let Err(error) = handled {
                *failed = index;
                undo::<D>(session, &error).await;
                return Err(Trouble::Handler(error));
            }
        }
        crash_point!("consume.handled");
        let enqueued = tx.flush().await?;
        let next_retry = self.put_aside(&mut session, &mut open.aside).await?;
        let tags = tags(deliveries);
        subscription.acknowledge_within(&mut session, &tags).await?;
        session.commit().await?;
        open.processed.committed();
        crash_point!("consume.committed");
        if enqueued > 0 {
            self.enqueued.call();
        }
        self.note(open.handled, open.duplicates, &open.aside);
        self.acknowledge(subscription, deliveries, &tags).await?;
        crash_point!("consume.acknowledged");
        Ok(Taken::Committed { next_retry })
    }

    pub(super) async fn admit(
        &self,
        session: &mut Session<D>,
        fence: &Fence,
        deliveries: &[Delivery],
    ) -> Result<Admission, StoreError> {
        let ids: Vec<MessageId> = deliveries.iter().filter_map(message_id).collect();
        let keys: HashSet<OrderingKey> = deliveries.iter().filter_map(key).collect();
        let keys: Vec<OrderingKey> = keys.into_iter().collect();
        let admitted = self
            .store
            .admit(session, &self.queue.consumer, fence, &ids, &keys)
            .await?;
        Ok(match admitted {
            Admission::Admitted { held, .. } if broken::makes(Mistake::Inbox) => {
                let fresh = ids.into_iter().collect();
                Admission::Admitted { fresh, held }
            }
            admitted => admitted,
        })
    }

    /// Handles one delivery of the batch, or notes what is to become of it instead.
    async fn handle_one(
        &self,
        tx: &mut Tx<'_, D>,
        delivery: &Delivery,
        attempt: u32,
        open: &mut Open,
    ) -> Result<(), HandleError> {
        // The first copy takes the id; any other, in this batch or another, is a duplicate.
        if message_id(delivery).is_some_and(|id| !open.fresh.remove(&id)) {
            open.duplicates += 1;
            return Ok(());
        }
        let envelope = match &delivery.message {
            Ok(envelope) => envelope,
            Err(malformed) => {
                let (letter, place) = self.malformed_letter(malformed);
                open.held.extend(place.as_ref().and(key(delivery)));
                open.aside.bury(letter, place);
                return Ok(());
            }
        };
        if envelope
            .key
            .as_ref()
            .is_some_and(|key| open.held.contains(key))
            && !broken::makes(Mistake::Hold)
        {
            open.aside.hold(self.untried(envelope));
            return Ok(());
        }
        let Some(handling) = self.handlers.get(envelope.message_type.as_str()) else {
            open.held.extend(envelope.key.clone());
            open.aside.hold(self.unhandled(envelope));
            return Ok(());
        };
        match self.call(tx, handling, envelope, attempt).await {
            Ok(process) => {
                open.handled += 1;
                open.processed.push(process);
            }
            // It is known before the handler is called: nothing has to be undone.
            Err(error @ HandleError::Decode(_)) => {
                let death = Death {
                    reason: Reason::Undecodable,
                    error: error_chain(&error),
                    attempts: attempt,
                };
                let (letter, place) = self.letter(envelope, death);
                open.held.extend(place.as_ref().and(envelope.key.clone()));
                open.aside.bury(letter, place);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub(super) async fn acknowledge(
        &self,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
        tags: &[DeliveryTag],
    ) -> Result<(), BrokerError> {
        let acknowledge = subscription.acknowledge(tags);
        telemetry::settling(&self.client, &self.queue, deliveries, acknowledge).await
    }

    /// Counts what a committed transaction of deliveries did.
    pub(super) fn note(&self, handled: u64, duplicates: u64, aside: &Aside) {
        self.held.add(aside.keys());
        self.counters
            .add_handled(handled, duplicates, aside.waiting(), aside.dead());
    }
}

pub(super) fn tags(deliveries: &[Delivery]) -> Vec<DeliveryTag> {
    deliveries.iter().map(|delivery| delivery.tag).collect()
}

/// The id of a delivery, as far as it has a valid one: a malformed message may.
pub(super) fn message_id(delivery: &Delivery) -> Option<MessageId> {
    match &delivery.message {
        Ok(envelope) => Some(envelope.id),
        Err(malformed) => malformed.raw.id.as_deref()?.parse().ok(),
    }
}

/// The key of a delivery, as far as it has a valid one.
pub(super) fn key(delivery: &Delivery) -> Option<OrderingKey> {
    match &delivery.message {
        Ok(envelope) => envelope.key.clone(),
        Err(malformed) => OrderingKey::new(malformed.raw.key.clone()?).ok(),
    }
}

pub(super) fn earlier(a: Option<Duration>, b: Option<Duration>) -> Option<Duration> {
    [a, b].into_iter().flatten().min()
}
