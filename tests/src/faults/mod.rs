//! The fault suite.

mod checker;
mod driver;
mod fault;
mod ground;
mod long;
mod message;
mod mutations;
mod network;
mod plan;
mod points;
mod report;
mod seat;
mod service;
mod short;
mod tables;
