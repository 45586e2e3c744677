//! One suite per trait, run on every implementation.

mod broker;
mod store;
