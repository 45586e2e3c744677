use std::collections::HashSet;
use std::future::Future;

use super::database::ConnectionOf;
use super::{Fence, Store, StoreError};
use crate::message::{MessageId, OrderingKey};

/// What the inbox says of a batch of deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Admission {
    /// The partition's lease is lost: roll back, handle nothing, acknowledge nothing.
    LeaseLost,
    /// The batch may be handled, under this transaction.
    Admitted {
        /// The ids that were not in the inbox and are now; the rest are duplicates.
        fresh: HashSet<MessageId>,
        /// The keys among those asked for that are on hold in the retry table.
        held: HashSet<OrderingKey>,
    },
}

/// The inbox: (consumer, message id) of what has been handled.
pub trait InboxStore {
    /// Inserts the ids, learns which are new, checks the partition's fence, and reads which of the
    /// keys are on hold, in this order: the insertion waits for a transaction of a former owner
    /// that holds one of the ids, and what that transaction put on hold is then seen.
    ///
    /// Ids are inserted sorted, so that two batches cannot deadlock; a duplicate within `ids` is
    /// one id.
    fn admit(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        fence: &Fence,
        ids: &[MessageId],
        keys: &[OrderingKey],
    ) -> impl Future<Output = Result<Admission, StoreError>> + Send
    where
        Self: Store;

    /// How many messages a consumer has handled, within the inbox's retention.
    fn handled(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send
    where
        Self: Store;
}
