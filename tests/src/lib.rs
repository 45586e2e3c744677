//! Posta's integration tests: one binary, `cargo test -p posta-tests --lib`.

#[cfg(test)]
mod compile_fail;
#[cfg(test)]
mod compile_pass;
#[cfg(test)]
mod conformance;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod field;
#[cfg(test)]
mod guarantees;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod layout;
#[cfg(test)]
mod main_job;
#[cfg(test)]
mod model;
#[cfg(test)]
mod operator;
#[cfg(test)]
mod postgres;
#[cfg(test)]
mod rabbitmq;
#[cfg(test)]
mod scheduled;
#[cfg(test)]
mod sqlite;
#[cfg(test)]
mod state_machine;
#[cfg(test)]
mod supervision;
#[cfg(test)]
mod trace;
#[cfg(test)]
mod world;
