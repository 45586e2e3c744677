//! The number of a consumer's partitions changes while it runs, and two versions of a service share
//! it: real processes, restarted, killed and stopped; judged by tables and queues.

mod back;
mod child;
mod crash;
mod judged;
mod late;
mod new_type;
mod provided;
mod rolling;
mod service;
mod stopped;
mod versions;
