//! The outbox: a message is a row written in the transaction that changes the state (G1),
//! dispatched after its commit (G2).
//!
//! [`Outbox`] is the enqueueing side and works on any connection of the database; the
//! **dispatcher** is the actor that owns lanes, publishes their rows and settles them.
//!
//! # The states of a message at this end
//!
//! A state is where the message is: nothing is held in memory that a crash could lose.
//!
//! ```text
//!        (1)                    (2)
//!         │                ┌─────▼─────┐
//!         │          (3)   │ scheduled ├──(4)──► gone
//!         │      ┌─────────┤           │
//!         │      │         └───────────┘
//!   ┌─────▼──────▼────┐
//!   │                 ├──(6)──► ┌─────────┐
//!   │     waiting     │         │ on hold │
//!   │                 │◄──(7)── └─────────┘
//!   └┬─────┬─────▲────┘
//!    │     │     └───────────────(9)──────────────┐
//!    │     │                                      │
//!    │    (8)──► ┌──────────────────────────────┐ │
//!    │     │     │ dead letter, its key waits   ├─┤
//!    │     │     └───────────────┬──────────────┘ │
//!    │     │                   (10)               │
//!    │     │     ┌───────────────▼──────────────┐ │
//!    │    (8)──► │ dead letter, its key goes on ├─┘
//!    │     │     └───────────────▲──────────────┘
//!    │     │                   (11)
//!    │     │     ┌───────────────┴──────────────┐
//!   (5)   (8)──► │ discarded                    │
//!    ▼           └──────────────────────────────┘
//!  dispatched ──(12)──► waiting
//! ```
//!
//! | | edge | when | its function |
//! |---|---|---|---|
//! | 1 | → waiting | the transaction that enqueued it commits | [`crate::Tx::enqueue`], [`Outbox::enqueue`] |
//! | 2 | → scheduled | the transaction that scheduled it commits | [`crate::Tx::enqueue_after`], [`crate::Tx::enqueue_at`] |
//! | 3 | scheduled → waiting | it is due by the database's clock: at the end of the outbox, behind its key's earlier messages | `Dispatcher::enqueue_due` |
//! | 4 | scheduled → gone | the transaction that cancelled it commits | [`crate::Tx::cancel_scheduled`], [`Outbox::cancel_scheduled`] |
//! | 5 | waiting → dispatched | the broker has confirmed it and did not return it | `Settlement::dispatched` |
//! | 6 | waiting → on hold | the broker returned or refused it, and it has attempts left; its key waits behind it | `Settlement::fail` |
//! | 7 | on hold → waiting | its hold is over by the database's clock; the key's first row goes first | [`crate::store::OutboxStore::pending`] |
//! | 8 | waiting → dead letter or discarded | its attempts are used up, or it can never be dispatched, or nobody takes a type that may be discarded | `Settlement::fail`, by the type's [`DispatchPolicy`] |
//! | 9 | dead letter → waiting | an operator replays it: in its key's old place, if that waits; with its old id and no attempts | [`crate::store::OutboxStore::readmit`] |
//! | 10 | key waits → key goes on | an operator skips the dead letter, or discards it; its successors leave in order | [`crate::store::OutboxStore::unpark`] |
//! | 11 | discarded → dead letter | an operator restores it, and can replay it then | [`crate::store::DeadLetterStore::change_letters`] |
//! | 12 | dispatched → waiting | an operator redispatches it: with its old id, at the end of the outbox | [`crate::store::RedispatchStore::redispatch`] |
//!
//! Every edge but the first two and the operators' carries the lane's lease: a dispatcher that has
//! lost it changes nothing, and what it published is published again by the new owner (N1). An
//! outage of broker or database is no edge: the row waits, and the dispatcher backs off.
//!
//! What a row's failure comes to counts when it is committed, so a key whose row failed sends
//! nothing more in that round, whatever its policy says.
//!
#![doc = include_str!("../../docs/outbox.md")]

#[cfg(any(feature = "postgres-blocking", feature = "sqlite"))]
pub mod blocking;
mod context;
mod dispatch_policy;
mod dispatcher;
mod due;
mod enqueue;
mod error;
mod failure;
mod policies;
mod publishing;
mod schedule;
mod scheduling;
mod settlement;
mod wave;

pub use context::Context;
pub use dispatch_policy::{
    ATTEMPTS_DEFAULT, ATTEMPTS_MAX, BACKOFF_BASE_MIN, BACKOFF_CAP_MAX, BACKOFF_DEFAULT,
    DispatchPolicy, Unroutable,
};
pub(crate) use dispatcher::Dispatcher;
pub use due::{DELAY_MAX, DUE_YEAR_MAX};
pub use enqueue::Outbox;
pub use error::{DueError, EnqueueError};
pub use policies::DispatchPolicies;
pub(crate) use settlement::Settled;
