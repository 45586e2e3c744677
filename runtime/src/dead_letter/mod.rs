//! Dead letters: messages that are set aside, with their bytes, from either end.
//!
//! A message that can never be dispatched or handled (malformed, undecodable, without an id) is
//! written here in the transaction that takes it from where it was.

mod fingerprint;
pub mod reason;

pub use crate::store::{NewDeadLetter, Origin};
pub use fingerprint::{FINGERPRINT_BYTES_MAX, fingerprint};
pub use reason::Reason;
