//! The outbox: a message is a row written in the transaction that changes the state (G1),
//! dispatched after its commit (G2).
//!
//! [`Outbox`] is the enqueueing side and works on any connection of the database; the
//! **dispatcher** is the actor that owns lanes, publishes their rows and settles them.
//!
//! # The states of a message at this end
//!
//! A state is where the message is: nothing is held in memory that a crash could lose. They are
//! drawn in [`crate::dead_letter`], *On the way to the broker*, with the function and the test of
//! each edge.
//!
//! Every edge but enqueueing, scheduling and the operators' carries the lane's lease: a dispatcher that has
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
