use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::intake::RECEIVE_TURN;
use super::partition::Partition;
use crate::lease::LeaseUse;
use crate::message::OrderingKey;
use crate::store::{Database, RetryStore, Session, Store, StoreError};
use crate::supervision::Life;

/// Messages of one key that may wait at a consumer, unless the configuration says otherwise.
pub const HELD_MAX_DEFAULT: usize = 100_000;

/// A partition that pauses looks again this often.
const LOOK_INTERVAL: Duration = Duration::from_secs(15);

/// Keys whose count is remembered; beyond them it is asked for anew.
const KEYS_MAX: usize = 10_000;

/// More messages of a key wait than allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Overflow {
    pub(super) key: OrderingKey,
    pub(super) count: usize,
    pub(super) limit: usize,
}

impl Overflow {
    /// How many may wait when the partition goes on: some less than the limit, so that it does not
    /// stop again at once.
    pub(super) fn relief(&self) -> usize {
        self.limit - (self.limit / 10).max(1)
    }
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, count, limit } = self;
        write!(
            f,
            "the partition takes nothing more: {count} messages of the key {:?} wait, the limit \
             is {limit}; replay, skip or discard the dead letter at its head",
            key.as_str()
        )
    }
}

impl Error for Overflow {}

/// How many messages of each key wait, as an upper bound: known since it was last counted, and what
/// was added since then. Counting again each time would cost more the more there are.
#[derive(Clone, Debug)]
pub(crate) struct HeldCounts {
    limit: usize,
    at_most: Arc<Mutex<HashMap<OrderingKey, usize>>>,
}

impl HeldCounts {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit,
            at_most: Arc::default(),
        }
    }

    /// Forgets all: the partition may have had another owner.
    pub(super) fn forget(&self) {
        self.lock().clear();
    }

    /// Counts messages that were added to the retry table.
    pub(super) fn add<'a>(&self, keys: impl Iterator<Item = &'a OrderingKey>) {
        let mut at_most = self.lock();
        for key in keys {
            if let Some(count) = at_most.get_mut(key) {
                *count += 1;
            }
        }
    }

    fn counted(&self, key: &OrderingKey, count: usize) {
        let mut at_most = self.lock();
        if at_most.len() >= KEYS_MAX {
            at_most.clear();
        }
        at_most.insert(key.clone(), count);
    }

    /// The keys of which too many may wait.
    fn doubtful<'a>(&self, keys: &'a HashSet<OrderingKey>) -> Vec<&'a OrderingKey> {
        let at_most = self.lock();
        let in_doubt = |key: &&OrderingKey| at_most.get(*key).is_none_or(|n| *n >= self.limit);
        keys.iter().filter(in_doubt).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<OrderingKey, usize>> {
        self.at_most.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Database> Partition<D> {
    /// The first of these keys behind which too much waits to add to it.
    pub(super) async fn overflow(
        &self,
        session: &mut Session<D>,
        held: &HashSet<OrderingKey>,
    ) -> Result<Option<Overflow>, StoreError> {
        for key in self.held.doubtful(held) {
            let count = self.held_count(session, key).await?;
            if count >= self.held.limit {
                return Ok(Some(Overflow {
                    key: key.clone(),
                    count,
                    limit: self.held.limit,
                }));
            }
        }
        Ok(None)
    }

    /// Takes nothing and handles nothing but what is due, until enough has gone or the partition is
    /// to be given up; the registry says why meanwhile. Nothing is lost: the broker has the rest.
    pub(super) async fn wait_for_relief(&self, life: &Life, lease: &LeaseUse, overflow: &Overflow) {
        tracing::error!(
            consumer = %self.queue.consumer,
            partition = self.queue.number,
            error = overflow as &dyn Error,
            "a partition pauses"
        );
        let mut changes = self.board.changes();
        loop {
            changes.hear();
            life.registry.degraded(&life.name, overflow.to_string());
            let next = self.run_due_through_outages(life, lease, true).await;
            let Some(next) = next.filter(|_| !life.is_draining() && lease.may_go_on()) else {
                return;
            };
            match self.relieved(overflow).await {
                Ok(true) => {
                    life.recovered();
                    return;
                }
                Ok(false) => {}
                Err(error) => tracing::warn!(
                    error = &error as &dyn Error,
                    "the messages of an overflowing key were not counted"
                ),
            }
            tokio::select! {
                () = tokio::time::sleep(next.clamp(RECEIVE_TURN, LOOK_INTERVAL)) => {}
                () = tokio::time::sleep(lease.remaining()) => {}
                () = changes.called() => {}
                () = life.draining() => return,
            }
        }
    }

    /// Whether enough has gone for the partition to go on.
    async fn relieved(&self, overflow: &Overflow) -> Result<bool, StoreError> {
        let mut session = self.store.begin_read().await?;
        let count = self.held_count(&mut session, &overflow.key).await?;
        session.commit().await?;
        Ok(count <= overflow.relief())
    }

    async fn held_count(
        &self,
        session: &mut Session<D>,
        key: &OrderingKey,
    ) -> Result<usize, StoreError> {
        let (consumer, limit) = (&self.queue.consumer, self.held.limit.saturating_add(1));
        let count = self.store.held_count(session, consumer, key, limit).await?;
        self.held.counted(key, count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise it would take the same deliveries again and again, and the broker count them.
    #[test]
    fn a_partition_goes_on_with_room_for_one_message_at_least() {
        for limit in [1, 2, 9, 10, 11, 100_000, usize::MAX] {
            let key = OrderingKey::new("k").unwrap();
            let overflow = Overflow {
                key,
                count: limit,
                limit,
            };
            assert!(overflow.relief() < limit, "{limit}");
        }
    }
}
