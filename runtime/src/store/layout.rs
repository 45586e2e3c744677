use std::future::Future;
use std::time::Duration;

use super::database::ConnectionOf;
use super::{Fence, MemberId, Store, StoreError};

/// One of the layouts that a consumer has one after another: its partitions, with queues and leases
/// of their own. The number of one that has gone never comes again, so whatever a process does late
/// to the queues or leases of a former one, it does to nothing that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation {
    /// Which one, from 1.
    pub number: u32,
    /// How many partitions it has, 1 to 64.
    pub partitions: u8,
}

impl Generation {
    /// A consumer's first one.
    #[must_use]
    pub const fn first(partitions: u8) -> Self {
        Self {
            number: 1,
            partitions,
        }
    }
}

/// How many partitions a consumer has, in all its processes, and how far a change of that is. What
/// a process is configured with is only its [`Wish`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The layout in use.
    pub generation: Generation,
    /// How far a change of it is.
    pub step: LayoutStep,
    /// One more at each step.
    pub epoch: i64,
    /// The wishes of the processes that are alive, by member.
    pub wishes: Vec<Wish>,
}

/// How far the change from one layout to another is. Each step is one transaction, and a crash leaves
/// the change in the step before or in the step after.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LayoutStep {
    /// Nothing changes.
    Rest,
    /// The queues of `next` are made and bound, then those of the layout in use are unbound.
    Binding {
        /// How many partitions the layout that is to come has.
        next: u8,
    },
    /// The queues of the layout in use get nothing new and are emptied.
    Draining {
        /// How many partitions the layout that is to come has.
        next: u8,
        /// The partitions in use that are empty: bit n is partition n.
        drained: u64,
    },
    /// The leases of the layout in use are given back; with the last one `next` is in use.
    Releasing {
        /// How many partitions the layout that is to come has.
        next: u8,
    },
    /// The layout in use is the new one, and the queues of the former one are removed.
    Clearing {
        /// How many partitions the layout had that was in use before.
        former: u8,
    },
}

/// How many partitions a process is configured with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The process.
    pub member: MemberId,
    /// How many partitions it is configured with.
    pub partitions: u8,
    /// The epoch of the layout for which it last saw to the broker's queues; 0 before.
    pub epoch: i64,
}

/// What [`LayoutStore::attend`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Attendance {
    /// The layout.
    pub layout: Layout,
    /// Whether the layout stays as it is until the transaction ends. If not, somebody is just
    /// changing it: leases may be kept, but none taken.
    pub settled: bool,
}

impl Layout {
    /// The layout that is to come, if one is.
    #[must_use]
    pub fn next(&self) -> Option<Generation> {
        use LayoutStep::{Binding, Clearing, Draining, Releasing, Rest};
        match self.step {
            Binding { next } | Draining { next, .. } | Releasing { next } => Some(Generation {
                number: self.generation.number.saturating_add(1),
                partitions: next,
            }),
            Rest | Clearing { .. } => None,
        }
    }

    /// The layout whose queues are to be removed, if they are.
    #[must_use]
    pub fn former(&self) -> Option<Generation> {
        match self.step {
            LayoutStep::Clearing { former } => Some(Generation {
                number: self.generation.number.saturating_sub(1),
                partitions: former,
            }),
            _ => None,
        }
    }
}

impl LayoutStep {
    /// The step as the table has it: `rest`, `binding`, `draining`, `releasing`, `clearing`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rest => "rest",
            Self::Binding { .. } => "binding",
            Self::Draining { .. } => "draining",
            Self::Releasing { .. } => "releasing",
            Self::Clearing { .. } => "clearing",
        }
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
impl LayoutStep {
    /// The columns `step`, `other` and `drained`.
    pub(crate) fn columns(self) -> (&'static str, Option<u8>, i64) {
        let (other, drained) = match self {
            Self::Rest => (None, 0),
            Self::Draining { next, drained } => (Some(next), drained),
            Self::Binding { next } | Self::Releasing { next } => (Some(next), 0),
            Self::Clearing { former } => (Some(former), 0),
        };
        (self.as_str(), other, drained.cast_signed())
    }

    /// The step of such columns; `None` if there is no such step.
    pub(crate) fn of_columns(step: &str, other: Option<u8>, drained: i64) -> Option<Self> {
        match (step, other) {
            ("rest", None) => Some(Self::Rest),
            ("binding", Some(next)) => Some(Self::Binding { next }),
            ("draining", Some(next)) => Some(Self::Draining {
                next,
                drained: drained.cast_unsigned(),
            }),
            ("releasing", Some(next)) => Some(Self::Releasing { next }),
            ("clearing", Some(former)) => Some(Self::Clearing { former }),
            _ => None,
        }
    }
}

/// The layouts in use (`layout`) and what the processes wish (`layout_wish`).
pub trait LayoutStore {
    /// Says that this process is one of the consumer's, until `ttl` from now (a `ttl` of zero: no
    /// longer), and what it wishes; forgets those whose time is over; reads the layout, and keeps
    /// others from changing it until the transaction ends, unless somebody is just doing that:
    /// nobody waits here. The first process's wish is the layout.
    fn attend(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        wish: Wish,
        ttl: Duration,
    ) -> impl Future<Output = Result<Attendance, StoreError>> + Send
    where
        Self: Store;

    /// The layout, as it was last committed; `None` of a consumer that never ran.
    fn layout(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
    ) -> impl Future<Output = Result<Option<Layout>, StoreError>> + Send
    where
        Self: Store;

    /// Locks the layout for [`LayoutStore::set_layout`] and [`LayoutStore::drained`], and reads it
    /// under the lock. `None` if there is none, or somebody has it locked or attends just now: nobody
    /// waits here.
    fn lock_layout(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
    ) -> impl Future<Output = Result<Option<Layout>, StoreError>> + Send
    where
        Self: Store;

    /// Sets the layout in use and the step, with the next epoch, which is returned. The caller has
    /// the layout locked.
    fn set_layout(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        generation: Generation,
        step: LayoutStep,
    ) -> impl Future<Output = Result<i64, StoreError>> + Send
    where
        Self: Store;

    /// Writes down that the fence's partition is drained, in the step draining and in this epoch.
    /// `false` if the fence is stale or the layout is another one; nothing has changed then. The
    /// caller has the layout locked.
    fn drained(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        fence: &Fence,
        epoch: i64,
    ) -> impl Future<Output = Result<bool, StoreError>> + Send
    where
        Self: Store;

    /// Takes this process's wish back: it has ended.
    fn unwish(
        &self,
        connection: &mut ConnectionOf<Self>,
        consumer: &str,
        member: MemberId,
    ) -> impl Future<Output = Result<(), StoreError>> + Send
    where
        Self: Store;
}
