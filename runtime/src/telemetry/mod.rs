#![doc = include_str!("../../docs/telemetry.md")]

mod by_trace;
mod client;
mod create;
mod destination;
mod error_type;
mod process;
mod remote;
mod send;
mod settle;
mod span;

pub(crate) use client::Client;
pub(crate) use create::{adopt, adopt_all, create};
pub(crate) use error_type::ErrorType;
pub(crate) use process::{Process, Processed};
pub(crate) use send::{routing, sending};
pub(crate) use settle::settling;
