use std::fmt;
use std::future::Future;
use std::time::Duration;

use uuid::Uuid;

use super::database::ConnectionOf;
use super::{Generation, Store, StoreError};

/// A process's random incarnation: a restarted process is another member.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MemberId(Uuid);

impl MemberId {
    /// A new incarnation.
    #[must_use]
    pub fn random() -> Self {
        Self(Uuid::new_v4())
    }

    /// The incarnation as a UUID.
    #[must_use]
    pub fn as_uuid(self) -> Uuid {
        self.0
    }
}

impl From<Uuid> for MemberId {
    fn from(id: Uuid) -> Self {
        Self(id)
    }
}

impl fmt::Display for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for MemberId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// What is shared out by leases: all lanes of the outbox, or all partitions of one consumer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// The outbox's 64 lanes; a lane's number is its slot's.
    Lanes,
    /// The partitions of a consumer in one layout: those of another layout are other leases, so a
    /// fence of the one never holds in the other.
    Partitions {
        /// The consumer's name.
        consumer: String,
        /// The layout.
        generation: Generation,
    },
}

impl Resource {
    /// The partitions of a consumer in a layout.
    #[must_use]
    pub fn partitions(consumer: impl Into<String>, generation: Generation) -> Self {
        Self::Partitions {
            consumer: consumer.into(),
            generation,
        }
    }

    /// The name under which the lease table knows it: `outbox`, or `consumer:`, the consumer's name
    /// (which has no slash), `/` and the number of the layout.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Lanes => "outbox".to_owned(),
            Self::Partitions {
                consumer,
                generation,
            } => format!("{}{}", partitions_prefix(consumer), generation.number),
        }
    }

    /// Whether it is the partitions of this consumer, in whatever layout.
    #[must_use]
    pub fn is_of(&self, name: &str) -> bool {
        matches!(self, Self::Partitions { consumer, .. } if consumer == name)
    }
}

/// What the names of a consumer's partitions begin with, in all layouts.
pub(crate) fn partitions_prefix(consumer: &str) -> String {
    format!("consumer:{consumer}/")
}

/// Ownership of one lane or partition as the database granted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Grant {
    /// The lane's or partition's number.
    pub number: u8,
    /// The fencing number: one more at each change of owner.
    pub epoch: i64,
}

/// What settles of leased work carry: it changes rows only while this member owns this lane or
/// partition in this epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// What is leased.
    pub resource: Resource,
    /// The owner.
    pub owner: MemberId,
    /// Which of it, and since which epoch.
    pub grant: Grant,
}

/// Leases (`lease`: one row per lane and per partition) and who contends for them (`member`).
pub trait LeaseStore {
    /// Makes this member one of those who share the resource, until `ttl` from now, and forgets
    /// those whose time is over. Returns all members alive, this one among them, sorted; with a
    /// `ttl` of zero it shares no longer, keeps what it owns, and is of no account to the others.
    /// Also sees to it that lease rows 0 to `count` - 1 exist.
    fn join(
        &self,
        connection: &mut ConnectionOf<Self>,
        resource: &Resource,
        count: u8,
        member: MemberId,
        ttl: Duration,
    ) -> impl Future<Output = Result<Vec<MemberId>, StoreError>> + Send
    where
        Self: Store;

    /// Renews what this member still owns (not expired, not taken) until `ttl` from now; returns
    /// exactly that, sorted by number.
    fn renew(
        &self,
        connection: &mut ConnectionOf<Self>,
        resource: &Resource,
        member: MemberId,
        ttl: Duration,
    ) -> impl Future<Output = Result<Vec<Grant>, StoreError>> + Send
    where
        Self: Store;

    /// Which leases with a number below `count` another member owned until its time ran out, instead
    /// of giving them back: it may have died of what it worked on. Sorted.
    fn deserted(
        &self,
        connection: &mut ConnectionOf<Self>,
        resource: &Resource,
        count: u8,
        member: MemberId,
    ) -> impl Future<Output = Result<Vec<u8>, StoreError>> + Send
    where
        Self: Store;

    /// Takes at most `limit` leases with a number below `count` that nobody owns or whose time is
    /// over, each with a new epoch; skips what another transaction has locked.
    fn acquire(
        &self,
        connection: &mut ConnectionOf<Self>,
        resource: &Resource,
        count: u8,
        member: MemberId,
        ttl: Duration,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<Grant>, StoreError>> + Send
    where
        Self: Store;

    /// Gives leases back, each only if it is still this grant's; returns how many.
    fn give_back(
        &self,
        connection: &mut ConnectionOf<Self>,
        resource: &Resource,
        member: MemberId,
        grants: &[Grant],
    ) -> impl Future<Output = Result<usize, StoreError>> + Send
    where
        Self: Store;

    /// Lets the time of leases run out at once, each only if it is still this grant's, for a user that
    /// cannot end: whoever takes them next takes them for [deserted](LeaseStore::deserted). Returns
    /// how many.
    fn desert(
        &self,
        connection: &mut ConnectionOf<Self>,
        resource: &Resource,
        member: MemberId,
        grants: &[Grant],
    ) -> impl Future<Output = Result<usize, StoreError>> + Send
    where
        Self: Store;

    /// Ends this member's claim to a share of the resource; what it still owns becomes free.
    fn leave(
        &self,
        connection: &mut ConnectionOf<Self>,
        resource: &Resource,
        member: MemberId,
    ) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;

    /// Who owns what of a resource now: number, owner if its time is not over, epoch.
    fn owners(
        &self,
        connection: &mut ConnectionOf<Self>,
        resource: &Resource,
    ) -> impl Future<Output = Result<Vec<(Grant, Option<MemberId>)>, StoreError>> + Send
    where
        Self: Store;
}
