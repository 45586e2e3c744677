//! Retry: what happens to a message between a failure and its next try.
//!
//! A delayed try is a row in the retry table ([`crate::store::RetryStore`]), written in one
//! transaction with the message's inbox id, after which the broker's copy is acknowledged: the
//! broker never holds a delay. A keyed message's successors join it there, in order, and run in
//! order when it is through; other keys flow. Due times are the database's.

mod after;
mod backoff;

pub use after::AfterDeadLetter;
pub use backoff::Backoff;
