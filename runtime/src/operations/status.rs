use std::time::Duration;

use super::Counts;
use crate::store::{Backlog, Layout};
use crate::supervision::ChildStatus;

/// What an operator asks first, read from the tables and the registry at one moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// What waits in the outbox.
    pub outbox: Backlog,
    /// Messages that are scheduled for later.
    pub scheduled: u64,
    /// Dead letters of the way from the outbox to the broker.
    pub dispatch_dead_letters: u64,
    /// The consumers of this process.
    pub consumers: Vec<ConsumerStatus>,
    /// What this process has done since it started.
    pub counts: Counts,
    /// Its actors.
    pub children: Vec<(String, ChildStatus)>,
    /// Whether every actor runs and misses nothing.
    pub healthy: bool,
}

/// One consumer, across all processes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConsumerStatus {
    /// Its name.
    pub name: String,
    /// Messages handled, within the inbox's retention.
    pub handled: u64,
    /// Messages in the retry table.
    pub held: u64,
    /// Ordering keys on hold.
    pub held_keys: u64,
    /// Its dead letters.
    pub dead_letters: u64,
    /// How many partitions it has, what processes wish, and how far a change is; `None` if it never
    /// ran.
    pub layout: Option<Layout>,
}

impl Status {
    /// How long the oldest message in the outbox has waited, by the database's clock.
    #[must_use]
    pub fn oldest_pending(&self) -> Duration {
        self.outbox.oldest
    }
}
