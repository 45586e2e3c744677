//! Retry: what happens to a message between a failure and its next try.
//!
//! A delayed try is a row in the retry table ([`crate::store::RetryStore`]), written in one
//! transaction with the message's inbox id, after which the broker's copy is acknowledged: the
//! broker never holds a delay. A keyed message's successors join it there, in order, and run in
//! order when it is through; other keys flow. Due times are the database's.

mod backoff;
mod policy;

pub use crate::message::{AfterDeadLetter, RetryOverride};
pub use backoff::Backoff;
pub use policy::{
    ATTEMPTS_MAX, ATTEMPTS_MAX_DEFAULT, BASE_DEFAULT, CAP_DEFAULT, CAP_MAX, DEADLINE_DEFAULT,
    DEADLINE_MAX, DEADLINE_MIN, RetryPolicy,
};
