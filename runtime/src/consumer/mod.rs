//! Consumers: named subscribers with their handlers.
//!
//! A [`Consumer`] is a name, one [`Handler`] per message type, and the state that handlers ask for. Each of its partitions is read by one
//! **partition actor**, which runs handlers in the transaction that the inbox guards.

mod batch;
mod consumer;
mod declaration;
mod delivery_info;
mod due;
mod error;
mod extract;
mod handled;
mod handler;
mod partition;

pub use consumer::{Consumer, PARTITIONS_DEFAULT, PARTITIONS_MAX};
pub(crate) use declaration::Declaration;
pub use delivery_info::DeliveryInfo;
pub use error::{Failure, HandleError};
pub use extract::{Data, Extract, ExtractError, State};
pub use handled::Handled;
pub(crate) use partition::Partition;
pub use handler::{Handler, HandlerFn, MethodFn};
