//! The number of a consumer's partitions changes while it runs, and two versions of a service share
//! it: real processes, restarted, killed and stopped; judged by tables and queues.

mod child;
mod crash;
mod judged;
mod rolling;
mod service;
mod stopped;
mod versions;
