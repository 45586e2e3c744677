use std::collections::HashSet;
use std::time::Duration;

use super::aside::Aside;
use super::batch::{Taken, earlier, key, message_id, tags};
use super::disturbance::Interruption;
use super::partition::Partition;
use crate::broker::{Delivery, Subscription};
use crate::message::OrderingKey;
use crate::store::{Admission, Database, Fence, NewHold, Store};
use crate::supervision::crash_point;

/// A delivery that the broker has delivered so often before may be what processes die of.
const SUSPECT_DELIVERIES: u32 = 2;

/// Deliveries apart: those that are moved to the retry table, and the others.
struct Apart {
    suspects: Vec<Delivery>,
    others: Vec<Delivery>,
}

/// Sets suspects apart, and with each everything of its key: what stays may be handled before it.
/// `None` if there are none.
fn apart(deliveries: &[Delivery], all: bool) -> Option<Apart> {
    let is_suspect = |delivery: &Delivery| all || delivery.deliveries >= SUSPECT_DELIVERIES;
    if !deliveries.iter().any(is_suspect) {
        return None;
    }
    let keys: HashSet<OrderingKey> = deliveries
        .iter()
        .filter(|delivery| is_suspect(delivery))
        .filter_map(key)
        .collect();
    let of_them = |delivery: &&Delivery| key(delivery).is_some_and(|key| keys.contains(&key));
    let (suspects, others) = deliveries
        .iter()
        .partition::<Vec<&Delivery>, _>(|it| is_suspect(it) || of_them(it));
    Some(Apart {
        suspects: suspects.into_iter().cloned().collect(),
        others: others.into_iter().cloned().collect(),
    })
}

impl<D: Database> Partition<D> {
    /// Handles deliveries, suspects apart from the others and before them; `all` are suspects if
    /// the broker does not count.
    pub(super) async fn handle_apart(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        deliveries: &[Delivery],
        all: bool,
    ) -> Result<Taken, Interruption> {
        let Some(Apart { suspects, others }) = apart(deliveries, all) else {
            return self.handle(fence, subscription, deliveries).await;
        };
        let moved = match self.move_suspects(fence, subscription, &suspects).await? {
            Taken::Committed { next_retry } => next_retry,
            stopped => return Ok(stopped),
        };
        if others.is_empty() {
            return Ok(Taken::Committed { next_retry: moved });
        }
        match self.handle(fence, subscription, &others).await? {
            Taken::Committed { next_retry } => Ok(Taken::Committed {
                next_retry: earlier(moved, next_retry),
            }),
            stopped => Ok(stopped),
        }
    }

    /// Moves deliveries of which a process may have died to the retry table, untried and due at
    /// once, where what another process dies of is found out ([`Partition::run_due`]); in one
    /// transaction with their inbox ids, after which they are acknowledged.
    async fn move_suspects(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        suspects: &[Delivery],
    ) -> Result<Taken, Interruption> {
        tracing::warn!(
            consumer = %self.queue.consumer,
            partition = self.queue.number,
            messages = suspects.len(),
            "a process may have died of one of these messages: they run from the retry table"
        );
        self.put_off(fence, subscription, suspects).await
    }

    /// Moves deliveries to the retry table, untried and due at once or behind their key's head; in
    /// one transaction with their inbox ids, after which they are acknowledged. Those that the inbox
    /// knows are only acknowledged.
    pub(super) async fn put_off(
        &self,
        fence: &Fence,
        subscription: &mut dyn Subscription<D>,
        suspects: &[Delivery],
    ) -> Result<Taken, Interruption> {
        let mut session = self.store.begin().await?;
        let (mut fresh, mut held) = match self.admit(&mut session, fence, suspects).await? {
            Admission::LeaseLost => {
                session.rollback().await;
                return Ok(Taken::LeaseLost);
            }
            Admission::Admitted { fresh, held } => (fresh, held),
        };
        if let Some(overflow) = self.overflow(&mut session, &held).await? {
            session.rollback().await;
            return Ok(Taken::Overflow(overflow));
        }
        let (mut aside, mut duplicates) = (Aside::default(), 0);
        for delivery in suspects {
            if message_id(delivery).is_some_and(|id| !fresh.remove(&id)) {
                duplicates += 1;
                continue;
            }
            match &delivery.message {
                Err(malformed) => {
                    let (letter, place) = self.malformed_letter(malformed);
                    held.extend(place.as_ref().and(key(delivery)));
                    aside.bury(letter, place);
                }
                Ok(envelope) => {
                    let behind = envelope.key.as_ref().is_some_and(|key| held.contains(key));
                    held.extend(envelope.key.clone());
                    aside.hold(NewHold {
                        delay: (!behind).then_some(Duration::ZERO),
                        ..self.untried(envelope)
                    });
                }
            }
        }
        let next_retry = self.put_aside(&mut session, &mut aside).await?;
        let tags = tags(suspects);
        subscription.acknowledge_within(&mut session, &tags).await?;
        session.commit().await?;
        crash_point!("consume.suspected");
        self.note(0, duplicates, &aside);
        self.acknowledge(subscription, suspects, &tags).await?;
        Ok(Taken::Committed { next_retry })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::broker::DeliveryTag;
    use crate::message::{Envelope, MessageType};

    fn delivery(tag: u64, key: Option<&str>, deliveries: u32) -> Delivery {
        let message_type = MessageType::from_static("a").unwrap();
        let key = key.map(|key| OrderingKey::new(key.to_owned()).unwrap());
        let envelope = Envelope::builder(message_type, "").key(key).build();
        Delivery {
            tag: DeliveryTag(tag),
            redelivered: deliveries > 0,
            deliveries,
            message: Ok(envelope.unwrap()),
        }
    }

    fn numbers(deliveries: &[Delivery]) -> Vec<u64> {
        deliveries.iter().map(|delivery| delivery.tag.0).collect()
    }

    #[test]
    fn everything_of_a_suspects_key_goes_with_it() {
        let deliveries = [
            delivery(1, Some("a"), 1),
            delivery(2, Some("b"), 1),
            delivery(3, Some("a"), 2),
            delivery(4, None, 1),
            delivery(5, None, 7),
            delivery(6, Some("a"), 0),
        ];
        let found = apart(&deliveries, false).unwrap();
        assert_eq!(numbers(&found.suspects), [1, 3, 5, 6]);
        assert_eq!(numbers(&found.others), [2, 4]);
        assert!(apart(&found.others, false).is_none());
        let all = apart(&found.others, true).unwrap();
        assert_eq!((all.suspects.len(), all.others.len()), (2, 0));
        assert!(apart(&[], true).is_none());
    }
}
