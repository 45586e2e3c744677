//! Layouts: how many partitions a consumer has, and how that changes while it runs.
//!
//! The protocol, before the code:
//!
//! - **One layout is in use at a time**, for all processes of a consumer. It is a row of the table
//!   `layout`, not a setting: what a process is configured with is its *wish*, which it announces
//!   with each tick of its lease keeper. When all processes that are alive wish the same other
//!   number, the layout moves to it. While they differ it stays, and status and log say so. So a
//!   rolling restart from 4 to 8 runs 4 until the last process that wishes 4 has left or its time is
//!   over. The first process's wish is the first layout.
//! - **Generations.** A layout is known by its number, from 1, which never comes again. Queues are
//!   called `<consumer>.<layout>.<partition>`, and leases belong to `consumer:<consumer>/<layout>`. So
//!   whatever a process does late, having been stopped in the middle of it (binding, unbinding,
//!   deleting, settling under a lease), it does to queues and leases of a layout that has gone, and
//!   never to those of a later one with the same number of partitions.
//! - **Steps.** Each is one transaction that changes the row under its lock, with the next epoch;
//!   what leads to it is idempotent; whoever comes upon a step goes on from it.
//!
//! | step | what is done in it | by whom | it ends when |
//! |---|---|---|---|
//! | rest | nothing | | all wish the same other number |
//! | binding | the next layout's queues are made and bound to every type that the consumer was announced to take; then those in use are unbound | every process; the owner of partition 0 | the latter is done |
//! | draining | partitions in use are emptied, each under its lease | their owners | all are written down as drained |
//! | releasing | the leases in use are given back; none is taken | all keepers | none is alive: in the same transaction the next layout is in use |
//! | clearing | the former queues, empty and without subscribers, are deleted | the owner of partition 0 | they are gone |
//!
//! A broker that keeps messages by slot ([`Capabilities::by_slot`]: the database) has no queues to
//! move: there, *releasing* follows *rest* and is followed by it.
//!
//! # Nothing is lost
//!
//! The next queues are bound *before* those in use are unbound, so at any time some queue takes each
//! message; in between a message comes to both, and the inbox refuses one of them. Afterwards
//! everything that comes to a queue in use also comes to one that is to come. So only what was there
//! before has to be handled from the former queues, and a binding that is left over (a process that
//! was stopped while it bound) costs copies that the inbox refuses.
//!
//! *Every type*: a process puts down its types before it binds them. Types that are new to the
//! consumer begin an epoch at rest, and a change begins only when every process that is alive has
//! seen to the queues in use for it; while queues are being bound nobody puts new ones down, and a
//! process that has some works without them until the next step. So the queues in use and those
//! that are to come get the same types as long as both are bound. (Were a new one bound to the
//! latter alone, a key's messages of the other types, which come to both, would be handled before
//! it.) The mover unbinds after every process that is alive has said that it sees to the next
//! queues (the wish carries the epoch for which it last did). Whoever comes later finds the step,
//! and binds the next queues itself. So no process binds queues in use once they are being unbound,
//! unless it was stopped meanwhile for longer than its time.
//!
//! # Order
//!
//! The queues in use are unbound from all types in one step for each slot
//! ([`BrokerDriver::unbind`](crate::broker::BrokerDriver::unbind)): until then they get every
//! message of a key, afterwards none. A process that was stopped before it bound them is refused by
//! the broker when it wakes, until the queues are deleted. So what is in them is a beginning of the
//! key's messages, without a gap that only the next queues fill.
//!
//! For a key, all that is in the former queues is handled before the first message is taken from the
//! next ones: a partition is drained only when the broker counts no message ready and no
//! subscription but its owner's, which has nothing in hand, again and again for the settling pause
//! (a quarter of a lease's time). A stopped process's subscription, with deliveries in hand, counts
//! until the broker has closed its connection. What the next queues begin with are copies of the
//! former queues' ends.
//!
//! A drained partition goes on with its retry table, and takes no deliveries. So keys whose partition
//! was drained early wait for the last one: that is the price of a change, and a reason to do it
//! while queues are short.
//!
//! Rows of the retry table and of the database broker's queues have a slot, not a partition: a key
//! that is on hold or parked stays so, and whoever owns the slot goes on with it. A foreign message
//! in another slot than its key's is handled in the order of the queue that it came to, before a
//! change and after it; what of it waits, waits under its key's slot.
//!
//! # Leases and fences
//!
//! A keeper takes leases only of the layout that its transaction reads under a shared lock; the step
//! to the next one needs the row's exclusive lock and no lease alive. So no two layouts have a live
//! lease at the same time, and a fence of the former one holds no more. Nobody waits for these locks:
//! a process that was stopped with one in hand must not stop the others, which renew what they own
//! and try again. The rows of former leases stay; each is some bytes.
//!
//! # What can go wrong meanwhile
//!
//! | | what holds |
//! |---|---|
//! | a process dies at any point | the next owner of its partition, or any keeper, goes on from the step that is written down |
//! | a process is stopped and wakes after the change | its window is over, its fences fail, its next tick turns to the layout in use; queues that it made or bound late it removes again (its mover removes, at rest, whatever it has declared of former layouts) |
//! | queues that are to come are refused (an operator has not made them yet) | the change waits; who starts reads the queues in use |
//! | the broker is away | the change waits; deliveries go on as without it |
//! | wishes change back meanwhile | the change goes to its end, and then back |
//! | a process that wishes the former number joins later | it runs what is in use; wishes differ, nothing moves |
//! | a key overflows | its partition does not drain until the operator has acted, and the change waits |
//! | a message comes late to a former queue | before the queue is deleted: if the inbox knows it, it is a copy; if not for some time (16 settling pauses), it goes to the retry table. Its key's order is not promised then: it was overtaken in the broker |
//! | the broker was slow for longer than all of this | a message that it had routed before the next queues were bound, and put into a queue that is deleted, is lost with it: AMQP has no way to know. The sender's next message of the key is not published before this one is confirmed, so it is one per key at most, and redispatch brings it back |
//! | an operator provides the queues ([`Capabilities::provides`]) | nobody but the operator knows when the bindings have been moved: the step *binding* waits until that is said (`posta layout bound`); former queues stay, empty, for the operator to delete |
//!
//! [`Capabilities::by_slot`]: crate::broker::Capabilities::by_slot
//! [`Capabilities::provides`]: crate::broker::Capabilities::provides

mod advance;
mod declaration;
mod seat;
mod watch;

pub use crate::store::{Generation, Layout, LayoutStep, Wish};
pub(crate) use advance::{all_drained, all_provide};
pub(crate) use declaration::{Announced, Declaration, Types};
pub(crate) use seat::Seat;
pub(crate) use watch::LayoutWatch;
