//! Whatever happens to processes, servers and the network between them: the fault suite. What it is
//! for whoever runs it is written in `runtime/docs/faults.md`; this is how it is built.
//!
//! Three parts that know little of each other:
//!
//! - **The driver** ([`driver`], with [`attendance`], [`disturbance`], [`queue_loss`] and [`rest`]; [`plan`],
//!   [`seat`], [`ground`], [`network`]) makes a round. A *ground*
//!   is a fresh database with a fresh place on a broker; a *seat* is a place for one process of a
//!   service, which dies and is started again. The driver is plain blocking code: what it waits for
//!   may be away.
//! - **The faults** ([`fault`], [`points`]) say what can happen. A crash at a point is armed when a process is
//!   started, by its environment; it counts when the process has said so and has ended by SIGABRT. A
//!   process that does not come by its point is killed, and another one is armed. All else is drawn,
//!   has its time, and is undone.
//! - **The checker** ([`checker`], [`tables`]) reads the tables and the broker's counts, past Posta and
//!   past the proxies, and judges them by a [`checker::Contract`]: who takes what, who answers what,
//!   which limits there are.
//!
//! The services ([`service`], [`message`]) are the test binary, called again. What they did is in the
//! tables: `sent` by who sends, `took` by who handles, both in the transaction that sends or handles.
//! A producer numbers the messages of a key by a row that it has locked until its commit, so the
//! numbers are in the order of the outbox, whoever else sends to that key.
//!
//! A round: start all → let things happen, and judge now and then → heal everything → wait until all is
//! quiet → judge, that nothing is lost → mend and replay what is dead → wait, and judge that all has
//! taken effect → drain. When something is wrong, it stops and keeps what there is to see.
//!
//! [`long`] makes rounds until its time is over, for `tests/faults`; [`short`] has one made on each
//! combination, on servers of its own; [`mutations`] shows that the checker sees what it is for.

mod attendance;
mod checker;
mod disturbance;
mod driver;
mod fault;
mod ground;
mod long;
mod message;
mod mutations;
mod network;
mod plan;
mod points;
mod queue_loss;
mod report;
mod rest;
mod seat;
mod service;
mod short;
mod tables;
