//! Supervision: what keeps the actors alive, and where their state can be read.
#![doc = include_str!("../../docs/supervision.md")]

mod arbiters;
pub(crate) mod broken;
mod budget;
mod child;
mod concern;
pub(crate) mod crash;
mod error_text;
mod fitness;
mod life;
mod lost;
pub(crate) mod panic;
mod phase;
mod progress;
mod rebuild;
mod registry;
mod root;
mod supervisor;
#[cfg(test)]
mod tests;
mod tree;
mod wake;

pub(crate) use arbiters::Arbiters;
pub use budget::{
    BUDGET_FAILURES_MAX, BUDGET_FAILURES_MIN, BUDGET_WINDOW_MAX, BUDGET_WINDOW_MIN, Budget,
    PastBudget, REBUILD_WINDOW_DEFAULT, REBUILDS_DEFAULT, RESTART_WINDOW_DEFAULT, RESTARTS_DEFAULT,
};
pub(crate) use child::ChildError;
pub(crate) use concern::{Concern, Place};
#[cfg(feature = "crash-points")]
pub use crash::at_crash_points;
pub(crate) use crash::crash_point;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) use error_text::ERROR_BYTES_MAX;
pub(crate) use error_text::{chain, error_chain};
pub use fitness::Fitness;
use fitness::Trial;
pub(crate) use life::Life;
pub use panic::Caught;
pub use phase::Phase;
pub(crate) use progress::{Doing, Progress};
pub use registry::{ChildState, ChildStatus, ConcernStatus, Registry};
use tree::Forget;
#[cfg(test)]
use tree::RESTART_BACKOFF;
pub(crate) use tree::{Pace, RESTART_BACKOFF_BASE, Tree};
pub use tree::{
    RESTART_BACKOFF_DEFAULT, RESTART_BACKOFF_MAX, RESTART_BACKOFF_MIN, STABLE_AFTER_DEFAULT,
    STABLE_AFTER_MAX, STABLE_AFTER_MIN,
};
pub(crate) use wake::{Wake, WakeListener};
