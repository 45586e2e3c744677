//! Liveness: what the registry believes is held against the outside.
//!
//! An actor that runs can be dead all the same: its subscription is one that the broker has
//! forgotten, its future waits for an answer that nobody gives, its view of the outbox is wrong.
//! None of that ends its body, so no supervisor sees it. The protocol, before the code:
//!
//! - **Look.** Once per lease period one actor looks at each **subject**, and finds it *well*, what it
//!   does *explained*, or *different* from what the outside says:
//!
//!   | subject | is different if | explained by |
//!   |---|---|---|
//!   | a partition that waits for deliveries | the broker knows of no subscription on its queue; messages are ready in it; the broker does not answer | no lease, making itself ready |
//!   | a partition at work | it takes no step for longer than its longest handler's deadline and four looks | a handler within its deadline |
//!   | a dispatcher that looks for rows | one of its lanes that could be dispatched is still the first one | no lanes |
//!   | a dispatcher at work | it takes no step for longer than the broker may take for one wave and four looks | waiting for the broker |
//!   | who moves a consumer's queues | it does not come to the end of a look for longer than a partition may be at work | |
//!   | a lease keeper | its last tick is older than a lease period, while the database answers this actor | |
//!
//!   Whoever is degraded, backs off, or drains is explained: that is on record already.
//! - **Steps rule.** Whoever has taken a step since the last look ([`Progress`]) is well, whatever
//!   else is found: a busy partition has messages ready in its queue, a busy outbox has old rows. On
//!   a machine under load everything is slow, and nothing is different for long.
//! - **What lasts is a failure.** The same difference in [`LOOKS_MAX`] looks in a row, without a step
//!   between them, restarts the actor, with the difference as the reason in registry and log; it
//!   counts against the budget like any other failure.
//! - **Confirmed.** What was found well, and when, is in the registry (`ChildStatus::confirmed`).
//!
//! If the database does not answer this actor, nothing is known, and all that was found is
//! forgotten: an outage is not the actors' fault.
//!
//! The age of the oldest row alone would say nothing: a backlog is old, and so is a row whose hold has
//! just ended. What is asked is the dispatcher's own statement, with a limit of one row: it reads the
//! index from its front and scans nothing. The relay is no subject, since polling does what it does,
//! nor is the replayer, whose runs say themselves how far they are.

mod dispatcher;
mod finding;
mod keeper;
mod liveness;
mod partition;
mod subject;
mod suspicion;

use finding::Finding;
pub(crate) use liveness::Liveness;
pub(crate) use subject::{Kind, Subject, Subjects};

#[cfg(doc)]
use crate::supervision::Progress;

/// Looks in a row at which a difference is a failure.
pub(crate) const LOOKS_MAX: u32 = 3;

#[cfg(all(test, feature = "sqlite"))]
mod tests;
