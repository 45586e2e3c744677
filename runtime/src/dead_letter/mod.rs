//! Dead letters: messages that are set aside, with their bytes, from either end.
//!
//! A message becomes one in the transaction that takes it from where it was, so it is never in both
//! places and never in none. The letter has everything that was known: the message byte for byte,
//! the [`Reason`], the whole chain of errors and its [`fingerprint()`], the number of tries, the
//! first failure and the last.
//!
//! While it is **parked** its key waits: its row in the retry table or the outbox stays as its
//! place ([`crate::store::RetryStore::park_held`], [`crate::store::OutboxStore::park`]). Replayed,
//! it runs there, before its successors; skipped or discarded, its key goes on without it
//! ([`crate::store::RetryStore::unpark_held`]). What operators do, and in which transactions, stands
//! in [`crate::operations`].
//!
#![doc = include_str!("../../docs/failure.md")]

mod fingerprint;
pub mod reason;

pub use crate::store::{NewDeadLetter, Origin};
pub use fingerprint::{FINGERPRINT_BYTES_MAX, fingerprint};
pub use reason::Reason;
