//! What the actors go by: every setting with its default, its limits, and their reasons.

use std::fmt;
use std::time::Duration;

use crate::consumer::HELD_MAX_DEFAULT;
use crate::message::limits::{PAYLOAD_BYTES_DEFAULT, PAYLOAD_BYTES_MAX};
use crate::outbox::DispatchPolicies;
use crate::retry::RetryPolicy;
use crate::supervision::{
    Budget, PastBudget, RESTART_BACKOFF_DEFAULT, RESTART_BACKOFF_MAX, RESTART_BACKOFF_MIN,
    STABLE_AFTER_DEFAULT, STABLE_AFTER_MAX, STABLE_AFTER_MIN,
};

/// Shortest lease period: a tick is a third of it, and a database under load answers within a
/// second.
pub const LEASE_TTL_MIN: Duration = Duration::from_secs(1);
/// Lease period unless the configuration says otherwise.
pub const LEASE_TTL_DEFAULT: Duration = Duration::from_secs(15);
/// Longest lease period: the time that a killed process's work waits.
pub const LEASE_TTL_MAX: Duration = Duration::from_secs(600);
/// Rows claimed, and messages handled in one transaction, at most, unless the configuration says
/// otherwise.
pub const BATCH_DEFAULT: usize = 256;
/// Most rows or messages in one batch.
pub const BATCH_MAX: usize = 10_000;
/// Longest pause between two looks, unless the configuration says otherwise.
pub const POLL_INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
/// Connections of the pool that Posta makes, unless the configuration says otherwise.
pub const CONNECTIONS_DEFAULT: usize = 16;
/// The longest time to wait for a connection: whoever waits is better told.
pub const CONNECT_TIMEOUT_MAX: Duration = Duration::from_secs(600);
/// How long a drain may take, unless the configuration says otherwise.
pub const GRACE_DEFAULT: Duration = Duration::from_secs(25);

const _: () = assert!(LEASE_TTL_MIN.as_millis() < LEASE_TTL_DEFAULT.as_millis());
const _: () = assert!(LEASE_TTL_DEFAULT.as_millis() < LEASE_TTL_MAX.as_millis());
const _: () = assert!(BATCH_DEFAULT <= BATCH_MAX);

/// What a runtime's actors go by, in effect: printable.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Settings {
    /// Threads that the actors are spread over.
    pub arbiters: usize,
    /// Rows that a dispatcher claims, and publishes unconfirmed, at most.
    pub dispatch_batch: usize,
    /// Messages that a partition handles in one transaction, at most.
    pub consume_batch: usize,
    /// What becomes of messages that the broker does not take.
    pub dispatch: DispatchPolicies,
    /// Largest payload, in bytes, at enqueue and at dispatch.
    pub payload_bytes_max: usize,
    /// How long a lease lasts without renewal: the longest time that a killed process's lanes and
    /// partitions rest.
    pub lease_ttl: Duration,
    /// The longest pause between two looks into outbox and queues.
    pub poll_interval_max: Duration,
    /// How often and when messages are tried at consumers that say nothing else.
    pub retry: RetryPolicy,
    /// Messages of one key that may wait at a consumer before its partition takes nothing more.
    pub held_max: usize,
    /// How long a message of a type that no handler here knows waits for one before it becomes a
    /// dead letter.
    pub unknown_type_grace: Duration,
    /// How long a drain may take before it is aborted.
    pub grace: Duration,
    /// How often a child may fail before its concern is rebuilt whole.
    pub restarts: Budget,
    /// How often a concern may be rebuilt before the runtime has failed.
    pub rebuilds: Budget,
    /// The longest rest before an actor's restart, and before a concern that has failed is tried
    /// again.
    pub restart_backoff: Duration,
    /// How long an actor has run when it has recovered.
    pub stable_after: Duration,
    /// What then becomes of it.
    pub past_budget: PastBudget,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            arbiters: std::thread::available_parallelism().map_or(2, |cores| cores.get().min(4)),
            dispatch_batch: BATCH_DEFAULT,
            consume_batch: BATCH_DEFAULT,
            dispatch: DispatchPolicies::default(),
            payload_bytes_max: PAYLOAD_BYTES_DEFAULT,
            lease_ttl: LEASE_TTL_DEFAULT,
            poll_interval_max: POLL_INTERVAL_DEFAULT,
            retry: RetryPolicy::default(),
            held_max: HELD_MAX_DEFAULT,
            unknown_type_grace: Duration::from_secs(600),
            grace: GRACE_DEFAULT,
            restarts: Budget::RESTARTS,
            rebuilds: Budget::REBUILDS,
            restart_backoff: RESTART_BACKOFF_DEFAULT,
            stable_after: STABLE_AFTER_DEFAULT,
            past_budget: PastBudget::default(),
        }
    }
}

impl Settings {
    /// Every rule that these settings break.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        let mut check = |holds: bool, mistake: String| {
            if !holds {
                mistakes.push(mistake);
            }
        };
        check(
            (1..=64).contains(&self.arbiters),
            format!("arbiters: {}; it must be 1 to 64", self.arbiters),
        );
        for (field, batch) in [
            ("dispatch_batch", self.dispatch_batch),
            ("consume_batch", self.consume_batch),
        ] {
            check(
                (1..=BATCH_MAX).contains(&batch),
                format!("{field}: {batch}; it must be 1 to {BATCH_MAX}"),
            );
        }
        check(
            (1..=PAYLOAD_BYTES_MAX).contains(&self.payload_bytes_max),
            format!(
                "payload_bytes_max: {} bytes; it must be 1 to {PAYLOAD_BYTES_MAX}",
                self.payload_bytes_max
            ),
        );
        check(
            (LEASE_TTL_MIN..=LEASE_TTL_MAX).contains(&self.lease_ttl),
            format!(
                "lease_ttl: {:?}; it must be {LEASE_TTL_MIN:?} to {LEASE_TTL_MAX:?}",
                self.lease_ttl
            ),
        );
        check(
            (Duration::from_millis(10)..=Duration::from_secs(60)).contains(&self.poll_interval_max),
            format!(
                "poll_interval_max: {:?}; it must be 10ms to 60s",
                self.poll_interval_max
            ),
        );
        check(
            (RESTART_BACKOFF_MIN..=RESTART_BACKOFF_MAX).contains(&self.restart_backoff),
            format!(
                "restart_backoff: {:?}; it must be {RESTART_BACKOFF_MIN:?} to \
                 {RESTART_BACKOFF_MAX:?}",
                self.restart_backoff
            ),
        );
        check(
            (STABLE_AFTER_MIN..=STABLE_AFTER_MAX).contains(&self.stable_after),
            format!(
                "stable_after: {:?}; it must be {STABLE_AFTER_MIN:?} to {STABLE_AFTER_MAX:?}",
                self.stable_after
            ),
        );
        check(
            self.held_max >= 1,
            format!("held_max: {}; it must be at least 1", self.held_max),
        );
        let policy = self.retry.mistakes().into_iter();
        mistakes.extend(policy.map(|mistake| format!("retry: {mistake}")));
        mistakes.extend(self.dispatch.mistakes());
        for (field, budget) in [("restarts", self.restarts), ("rebuilds", self.rebuilds)] {
            let broken = budget.mistakes().into_iter();
            mistakes.extend(broken.map(|mistake| format!("{field}: {mistake}")));
        }
        mistakes
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "arbiters            {}", self.arbiters)?;
        writeln!(f, "dispatch batch      {}", self.dispatch_batch)?;
        writeln!(f, "consume batch       {}", self.consume_batch)?;
        writeln!(f, "failed dispatch     {}", self.dispatch)?;
        writeln!(f, "payload, at most    {} bytes", self.payload_bytes_max)?;
        writeln!(f, "lease period        {:?}", self.lease_ttl)?;
        writeln!(
            f,
            "poll interval       {:?} at most",
            self.poll_interval_max
        )?;
        writeln!(f, "tries               {} at most", self.retry.attempts_max)?;
        writeln!(f, "handler's deadline  {:?}", self.retry.deadline)?;
        writeln!(f, "of one key wait     {} at most", self.held_max)?;
        writeln!(f, "unknown type waits  {:?}", self.unknown_type_grace)?;
        writeln!(f, "grace of a drain    {:?}", self.grace)?;
        writeln!(f, "failures of a child {}, then a rebuild", self.restarts)?;
        writeln!(f, "rebuilds            {}, then failed", self.rebuilds)?;
        writeln!(f, "rest before it      {:?} at most", self.restart_backoff)?;
        writeln!(f, "recovered after     {:?}", self.stable_after)?;
        write!(f, "once failed         {}", self.past_budget)
    }
}
