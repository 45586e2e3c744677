//! The inbox: (consumer, message id) of what has been handled, written in the transaction of the
//! handler's effects (G3).
//!
//! The table and its statements are [`crate::store::InboxStore`]; the partition actor asks it
//! before each batch. A copy of a message, in sequence or in parallel, cannot insert its id and
//! changes nothing.

pub use crate::store::Admission;
