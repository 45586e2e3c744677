//! What tests run on: databases that each test has to itself.

pub(crate) mod sqlite;
