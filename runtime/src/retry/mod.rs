//! Retry: what happens to a message between a failure and its next try.
//!
//! A [`RetryPolicy`] says how often and when a message is tried, how long its handler may take, and
//! what its key does once it is a dead letter. It comes from four places, the nearest first:
//!
//! | where | scope |
//! |---|---|
//! | [`crate::Consumer::retry_for`] | one message type at one consumer |
//! | `#[message(retry(…), deadline = …, after_dead_letter = …)]`, a [`RetryOverride`] | one message type at every consumer, part by part |
//! | [`crate::Consumer::retry`] | one consumer |
//! | [`crate::Builder::retry`] | the process |
//!
//! A delayed try is a row in the retry table ([`crate::store::RetryStore`]), written in one
//! transaction with the message's inbox id, after which the broker's copy is acknowledged: the
//! broker never holds a delay. A keyed message's successors join it there, in order, and run in
//! order when it is through; other keys flow. Due times are the database's, and only the owner of
//! the partition's lease acts on them, so more processes do not mean more tries.
//!
//! The states of a row, and what moves it, stand in [`crate::dead_letter`].

mod backoff;
mod policy;

pub use crate::message::{AfterDeadLetter, RetryOverride};
pub use backoff::Backoff;
pub use policy::{
    ATTEMPTS_MAX, ATTEMPTS_MAX_DEFAULT, BASE_DEFAULT, CAP_DEFAULT, CAP_MAX, DEADLINE_DEFAULT,
    DEADLINE_MAX, DEADLINE_MIN, RetryPolicy,
};
