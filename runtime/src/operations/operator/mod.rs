//! What an operator can do: look at what was set aside, repair it, and send it on its way again.
//!
//! An [`Operator`] is a person at a database. [`Operator::new`] makes one from a store alone, so a
//! command line or a console works without a running actor; [`crate::Posta::operator`] makes one
//! that also knows the handlers of its process, and can tell in a dry run whether a payload decodes.
//!
//! | to | call |
//! |---|---|
//! | look | [`Operator::letters`], [`Operator::groups`], [`Operator::show`], [`Operator::record`], [`Operator::overview`] |
//! | replay | [`Operator::replay`] one, [`Operator::dry_run`] and [`Operator::begin_run`] a key or any selection |
//! | watch and steer a run | [`Operator::runs`], [`Operator::run`], [`Operator::pause`], [`Operator::resume`], [`Operator::cancel`] |
//! | repair | [`Operator::edit`], after [`Operator::preview_edit`] |
//! | let a key go on | [`Operator::skip`], [`Operator::discard`], [`Operator::restore`] |
//! | take back what is on its way | [`Operator::recall`] |
//! | send kept rows again | [`Operator::redispatch`] |
//! | say that bindings were moved | [`Operator::layout_bound`] |
//!
//! Every action is one transaction: the letters are locked, their state is checked, they are
//! changed, the message is moved, and who did it and why is written down. So two operators who do
//! the same at the same time cannot both succeed, and there is no change without its record.
//!
//! **Lock order.** Letters before rows of the retry table and the outbox. A partition that handles
//! a replayed message holds its retry row first and then writes the letter; operators never wait
//! for rows of letters that are on their way (a recall begins with the row, and takes it if it is
//! free, or not at all), so the two cannot wait for each other in a circle.
//!
//! # The command line
//!
#![doc = include_str!("../../../docs/operating.md")]

mod act;
mod check;
mod dry_run;
mod edit;
mod error;
mod layout;
mod look;
mod operator;
mod overview;
mod redispatch;
mod runs;
mod selection;
mod wiring;

pub use check::{Decodes, HandlerPresence};
pub use dry_run::{Doubt, DryRun, KeyShare, TypeShare};
pub use edit::{Edit, Edited};
pub use error::{OperatorError, OperatorErrorKind};
pub use look::Shown;
pub use operator::{
    IDS_MAX, INBOX_RETENTION_DEFAULT, Operator, PAGE_MAX, REASON_BYTES_MAX, WHO_BYTES_MAX,
};
pub use overview::Overview;
pub use redispatch::{Redispatch, RedispatchSelection};
pub use runs::{RATE_MAX, RunOrder};
pub(crate) use wiring::Wiring;
