//! The outbox: a message is a row written in the transaction that changes the state (G1),
//! dispatched after its commit (G2).
//!
//! [`Outbox`] is the enqueueing side and works on any connection of the database; the
//! **dispatcher** is the actor that owns lanes, publishes their rows and settles them.
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
