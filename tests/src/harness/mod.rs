//! What tests run on: databases and virtual hosts that each test has to itself, and ways to disturb
//! what they run on.

pub(crate) mod build;
pub(crate) mod database;
pub(crate) mod http;
pub(crate) mod postgres;
pub(crate) mod proxy;
pub(crate) mod rabbitmq;
pub(crate) mod sqlite;
