//! Every accepted form of the derive macros has a file in `ui/pass`, with tests of what it
//! generates.

#[path = "../ui/pass/mod.rs"]
mod pass;
