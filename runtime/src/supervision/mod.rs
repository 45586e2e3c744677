//! Supervision: what keeps the actors alive, and where their state can be read.
//!
//! The protocol, before the code:
//!
//! - A **child** is an actor with a name that lives on one arbiter. Its body is an async function
//!   that is called anew at every start; it has nothing that must survive, since everything that
//!   must is in the database.
//! - A child **ends** by finishing (it was told to drain), by an error, or by a panic, which is
//!   caught. Every other end than a drained one is a failure: its supervisor counts it, writes it
//!   into the [`Registry`], and starts the body again after a backoff that doubles up to a cap and
//!   falls back once the child has run for a while.
//! - The **phase** (run, drain, abort) is one value that all children watch; it only moves forward.
//!   Draining children finish what is in flight and take nothing new; at abort they are dropped
//!   where they stand, and the database and the broker undo what was half done.
//! - **Wakes** tell actors that there may be work. They carry nothing, coalesce, and may get lost:
//!   polling alone is enough for correctness.
//!
//! One supervisor serves one concern: the outbox (dispatchers), each consumer (its partition
//! actors), leases, wakes.

pub(crate) mod broken;
mod child;
pub(crate) mod crash;
mod error_text;
mod phase;
mod registry;
mod supervisor;
#[cfg(test)]
mod tests;
mod wake;

pub(crate) use child::{Body, ChildError, Life};
#[cfg(feature = "crash-points")]
pub use crash::at_crash_points;
pub(crate) use crash::crash_point;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use error_text::ERROR_BYTES_MAX;
pub(crate) use error_text::{chain, error_chain, panic_text};
pub use phase::Phase;
pub use registry::{ChildState, ChildStatus, Registry};
pub(crate) use supervisor::{ChildSpec, Drained, Start, Supervisor};
pub(crate) use wake::{Wake, WakeListener};
