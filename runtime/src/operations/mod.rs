//! Operations: building, starting, watching and stopping a runtime.
//!
//! [`Posta::builder`] collects everything and reports all mistakes at once; [`Builder::start`]
//! spawns the actor system:
//!
//! ```text
//! root   supervisor "outbox"              dispatchers, one per arbiter
//!        supervisor "consumer <name>"     one partition actor per partition
//!        supervisor "leases"              one lease keeper for the lanes and one per consumer
//!        supervisor "wakes"               the relay between processes
//!        supervisor "operations"          the replayer, and who looks whether all are alive
//! ```
//!
//! What a supervisor sees and does stands in [`crate::supervision`].

mod builder;
mod counters;
mod error;
mod health;
mod liveness;
pub mod operator;
mod posta;
mod relay;
mod replay;
pub mod settings;
mod signals;
mod spawn;
mod status;
mod stop;
#[cfg(target_os = "linux")]
mod systemd;

pub use builder::Builder;
pub use counters::{Counters, Counts};
pub use error::{StartError, StopError, StopErrorKind, TransactionError};
pub use health::Health;
pub use operator::{Operator, OperatorError};
pub use posta::Posta;
pub use settings::Settings;
pub use status::{ConsumerStatus, Status};
