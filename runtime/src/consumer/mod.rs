//! Consumers: named subscribers with their handlers.
//!
//! A [`Consumer`] is a name, one [`Handler`] per message type, and the state that handlers ask for.
//! Each of its partitions is read by one **partition actor**, which runs handlers in the
//! transaction that the inbox guards.
//!
//! # A message at this end
//!
//! Every state is a place in a table, every edge one transaction and one function; a crash at any
//! point leaves the message in the state before or in the state after. What is broker's and is not
//! acknowledged is delivered again, and the inbox knows what was handled. The states, with the
//! function and the test of each edge, are drawn in [`crate::dead_letter`], *At a consumer*.
//!
//! - **Whose failure it is** says [`HandleError`], what is to become of it the verdict
//!   (`verdict.rs`) by the message's [policy](crate::retry::RetryPolicy) and the failure's
//!   [`Nature`]. Disturbances and outages of database and broker are nobody's (`disturbance.rs`).
//! - **A parked key**: the dead letter's row stays in the retry table as its *place*, so everything
//!   that asks whether a key is on hold finds it so, and later messages queue up behind it.
//! - **What kills its process**: before it runs rows of the retry table, a process claims them. A
//!   claim that it left behind means that it died; such a row is run alone, and is dead after five
//!   deaths in a row. Deliveries become such rows when the broker has delivered them twice before, or, with
//!   a broker that does not count, when they are the first that are read after a partition's owner
//!   let its lease run out. So of those that were in the dead process's hands only the guilty one
//!   is set aside.
//! - **Full speed**: successors of a head that is through run together, a batch in a transaction;
//!   between batches, and between rows that are due, deliveries of other keys have their turn.
//! - **Overflow**: at its limit of messages behind one key a partition closes its subscription and
//!   goes on only with what is due, until there is room (`overflow.rs`).

mod announcement;
mod aside;
mod batch;
mod call;
mod consumer;
mod dead_queue;
mod delivery_info;
mod disturbance;
mod drain;
mod due;
mod error;
mod extract;
pub(crate) mod generated;
mod handled;
mod handler;
mod handlers;
mod intake;
mod late;
mod mover;
mod overflow;
mod partition;
mod parts;
mod single;
mod successors;
mod suspects;
mod unhandled;
mod verdict;

pub(crate) use announcement::{Announcement, Bound};
pub use consumer::{Consumer, NAME_BYTES_MAX, PARTITIONS_DEFAULT, PARTITIONS_MAX, is_valid_name};
pub(crate) use dead_queue::DeadQueue;
pub use delivery_info::DeliveryInfo;
pub use error::{Failure, HandleError, Nature};
pub use extract::{Data, Extract, ExtractError, State};
pub use handled::Handled;
pub use handler::{Handler, HandlerFn, MethodFn, Outcome};
pub(crate) use handlers::Handlers;
pub(crate) use mover::Mover;
pub use overflow::HELD_MAX_DEFAULT;
pub(crate) use overflow::HeldCounts;
pub(crate) use partition::Partition;
