//! Leases: which process works on which lane and which partition.
//!
//! The protocol, before the code:
//!
//! - **State.** One row per lane and per partition: owner (a process's random incarnation), epoch,
//!   expiry. One row per process and resource: who shares it, until when. All times are the
//!   database's.
//!   Partitions of another layout are other rows ([`crate::layout`]).
//! - **Tick.** Three times per lease period the **keeper** does, in one transaction per resource:
//!   say that this process is alive and learn who else is; renew what it owns; compute its fair
//!   share; give back what is above the share and no longer in use; take free or expired leases up
//!   to the share. Nobody coordinates: all processes compute the same shares from the same members.
//! - **Trust window.** A lease is used until `ttl` less a margin after the moment *before* the
//!   renewing statement was sent, on this process's monotonic clock. The database lets the lease
//!   expire `ttl` after it executed that statement, which is later. So an owner stops before
//!   another can start, whatever their wall clocks say. A process that was paused finds its window
//!   over when it wakes.
//! - **Fence.** What was in flight when the window closed is caught by the epoch, which every
//!   settle carries: zero rows changed means that the lease is lost, which is an outcome, not an
//!   error.
//! - **Hand-over.** A lease above the fair share is first marked *not to keep*; its user finishes
//!   what is in flight, drops its `LeaseUse`, and only then does the keeper give it back.
//! - **Drain.** A process that drains is no member from its next tick on, and still owns what is in
//!   use: the others share all of it out among themselves and take each lease as it is given back,
//!   however long the last one takes.
//! - **Blocked user.** A handler that never yields cannot be made to drop its lease. When its
//!   arbiter counts as blocked, its lease is written off: not renewed, but deserted, so that it runs
//!   out in the database at once, and whoever takes it next, this process or another, does so in a
//!   new epoch and takes what was in hand for suspicious.
//! - **Unfit users.** A process whose users of a resource fail several times in a row
//!   ([`Fitness`](crate::supervision::Fitness)) is no member of it: what it owns is drained and given
//!   back, and the others share all of it out. While there are no others it goes on with all that is
//!   free, since nobody else would; while its concern is being rebuilt and nothing runs, with
//!   nothing. It is a member again after a run without a failure. A consumer's layout waits for it all
//!   the same.
//! - **Outage.** A keeper that cannot reach the database tries again on its own, soon at first:
//!   leases run out meanwhile, and users stop by themselves.

mod board;
mod keeper;
mod share;

pub use crate::store::{Fence, Grant, MemberId, Resource};
pub(crate) use board::{Board, LeaseUse};
pub(crate) use keeper::{Keeper, leave_all};
