//! Layouts.

mod advance;
mod declaration;
mod seat;
mod watch;

pub use crate::store::{Generation, Layout, LayoutStep, Wish};
pub(crate) use advance::all_drained;
pub(crate) use declaration::{Declaration, Types};
pub(crate) use seat::Seat;
pub(crate) use watch::LayoutWatch;
