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
//! acknowledged is delivered again, and the inbox knows what was handled.
//!
//! ```text
//!                    ┌──────────── (1) ────────────► handled: in the inbox
//!  ┌───────────┐     │                                ▲    ▲
//!  │ delivered ├─────┤              ┌───────┐   (5)   │    │
//!  └───────────┘     ├──── (2) ────►│  due  ├─────────┘    │
//!                    │              │ later ├──┐           │
//!                    │              └──▲──┬─┘  │ (6)       │ (8)
//!                    │                 └──│────┘           │
//!                    │              ┌─────┴────┐           │
//!                    ├──── (3) ────►│ waiting  ├───────────┘
//!                    │              └──────────┘
//!                    │              ┌──────────────────────┐
//!                    └──── (4) ────►│ dead letter:         │◄── (7) from due later
//!                                   │ its key is parked,   │◄── (9) <consumer>.dead
//!                                   │ or goes on           │──► (10) due, by an operator
//!                                   └──────────────────────┘
//! ```
//!
//! | edge | when | function |
//! |---|---|---|
//! | 1 | its handler succeeds, in a batch, or alone after it has failed in one; tries at once among it | `handle_together`, `handle_alone` |
//! | 2 | its handler failed, by its policy; or no handler is here yet | `settle_failed`, `handle_one` |
//! | 2 | processes may have died of it | `move_suspects` |
//! | 3 | its key is on hold | `handle_one` |
//! | 4 | it is malformed or cannot be decoded; its tries are used up at once, or it is permanent | `handle_one`, `settle_failed` |
//! | 5 | its time has come and its handler succeeds | `try_once` |
//! | 6 | its handler fails again, or there is still none | `postpone` |
//! | 7 | its tries are used up, it is permanent, its grace without a handler is over, five processes died of it | `set_aside` |
//! | 8 | the head of its key is through: together with others, or due for itself | `run_successors`, `try_once` |
//! | 9 | the broker delivered it too often | `DeadQueue::bury` |
//! | 10 | an operator replays it | [`crate::operations`] |
//!
//! A copy of what the inbox knows is only acknowledged (`handle_one`).
//!
//! - **Whose failure it is** says [`HandleError`], what is to become of it the verdict
//!   (`verdict.rs`) by the message's [policy](crate::retry::RetryPolicy) and the failure's
//!   [`Nature`]. Disturbances and outages of database and broker are nobody's (`disturbance.rs`).
//! - **A parked key**: the dead letter's row stays in the retry table as its *place*, so everything
//!   that asks whether a key is on hold finds it so, and later messages queue up behind it.
//! - **What kills its process**: before it runs rows of the retry table, a process claims them. A
//!   claim that it left behind means that it died; such a row is run alone, and is dead after three
//!   deaths. Deliveries become such rows when the broker has delivered them twice before, or, with
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
mod parts;
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
