use std::collections::BTreeMap;
use std::time::Duration;

use super::Handler;
use crate::message::RetryOverride;
use crate::retry::RetryPolicy;
use crate::store::Database;

/// What a consumer does with one message type.
pub(crate) struct Handling<D: Database> {
    pub(crate) handler: Handler<D>,
    /// The version of the message's schema that the handler was compiled with.
    pub(crate) version: u32,
    /// What the message's attribute says of the retry policy.
    pub(crate) parts: RetryOverride,
    /// What [`super::Consumer::retry_for`] says of it.
    pub(crate) own: Option<RetryPolicy>,
}

impl<D: Database> Handling<D> {
    /// The policy that holds, under its consumer's.
    pub(crate) fn policy(&self, consumers: RetryPolicy) -> RetryPolicy {
        self.own
            .unwrap_or_else(|| consumers.overridden(&self.parts))
    }
}

/// A consumer's handlers by message type, each with the policy that holds for it.
pub(crate) struct Handlers<D: Database> {
    handlers: BTreeMap<&'static str, (Handler<D>, RetryPolicy)>,
    policy: RetryPolicy,
}

impl<D: Database> Handlers<D> {
    pub(crate) fn new(
        handlings: BTreeMap<&'static str, Handling<D>>,
        consumers: RetryPolicy,
    ) -> Self {
        Self {
            handlers: handlings
                .into_iter()
                .map(|(name, handling)| {
                    let policy = handling.policy(consumers);
                    (name, (handling.handler, policy))
                })
                .collect(),
            policy: consumers,
        }
    }

    /// The handler of a message type and its policy.
    pub(crate) fn get(&self, message_type: &str) -> Option<(&Handler<D>, &RetryPolicy)> {
        let (handler, policy) = self.handlers.get(message_type)?;
        Some((handler, policy))
    }

    /// The policy of a message type: its consumer's, if there is no handler for it.
    pub(super) fn policy(&self, message_type: &str) -> &RetryPolicy {
        self.get(message_type)
            .map_or(&self.policy, |(_, policy)| policy)
    }

    /// The longest time that one call of a handler may take.
    pub(crate) fn deadline_max(&self) -> Duration {
        let deadlines = self.handlers.values().map(|(_, policy)| policy.deadline);
        deadlines.max().unwrap_or(self.policy.deadline)
    }
}
