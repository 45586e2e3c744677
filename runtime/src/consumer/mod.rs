//! Consumers: named subscribers with their handlers.
//!
//! A [`Consumer`] is a name, one [`Handler`] per message type, and the state that handlers ask for.
//! Each of its partitions is read by one **partition actor**, which runs handlers in the
//! transaction that the inbox guards.

mod announcement;
mod aside;
mod batch;
mod call;
mod consumer;
mod dead_queue;
mod delivery_info;
mod disturbance;
mod due;
mod error;
mod extract;
pub(crate) mod generated;
mod handled;
mod handler;
mod handlers;
mod intake;
mod overflow;
mod partition;
mod single;
mod successors;
mod suspects;
mod verdict;

pub(crate) use announcement::Announcement;
pub use consumer::{Consumer, NAME_BYTES_MAX, PARTITIONS_DEFAULT, PARTITIONS_MAX, is_valid_name};
pub(crate) use dead_queue::DeadQueue;
pub use delivery_info::DeliveryInfo;
pub use error::{Failure, HandleError, Nature};
pub use extract::{Data, Extract, ExtractError, State};
pub use handled::Handled;
pub use handler::{Handler, HandlerFn, MethodFn, Outcome};
pub(crate) use handlers::Handlers;
pub use overflow::HELD_MAX_DEFAULT;
pub(crate) use overflow::HeldCounts;
pub(crate) use partition::Partition;
