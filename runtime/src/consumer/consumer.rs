use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::handler::Arguments;
use super::handlers::{Handlers, Handling};
use super::{Handled, Handler, HandlerFn, MethodFn, State};
use crate::message::{Message, MessageType, SLOTS};
use crate::retry::RetryPolicy;
use crate::store::Database;

/// Partitions of a consumer unless it says otherwise.
pub const PARTITIONS_DEFAULT: u8 = 8;

/// Most partitions of a consumer: a partition is a range of slots, so there cannot be more of them
/// than slots.
pub const PARTITIONS_MAX: u8 = SLOTS;

/// Longest consumer name, in bytes: the longest queue name made from it is `<name>.63`, an AMQP
/// short string of 255 bytes; names are kept far below, since they stand in every inbox row.
pub const NAME_BYTES_MAX: usize = 100;

const _: () = assert!(PARTITIONS_DEFAULT <= PARTITIONS_MAX);

/// A named subscriber with its handlers.
///
/// Its name is its identity: queues, inbox rows and leases are found by it. All processes that run
/// a consumer must give it the same number of partitions. Mistakes are collected and reported by
/// [`crate::Builder::start`], all at once.
pub struct Consumer<D: Database> {
    pub(crate) name: String,
    pub(crate) partitions: u8,
    pub(crate) handlings: BTreeMap<&'static str, Handling<D>>,
    pub(crate) retry: Option<RetryPolicy>,
    retry_for: BTreeMap<&'static str, RetryPolicy>,
    pub(crate) state: State,
    pub(crate) mistakes: Vec<String>,
}

impl<D: Database> Consumer<D> {
    /// A consumer without handlers yet. The name has 1 to 100 of `a-z A-Z 0-9 . _ -`.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            partitions: PARTITIONS_DEFAULT,
            handlings: BTreeMap::new(),
            retry: None,
            retry_for: BTreeMap::new(),
            state: State::default(),
            mistakes: Vec::new(),
        }
    }

    /// Handles a message type with the handler that is named beside the message.
    #[must_use]
    pub fn handles<M: Handled<D>>(mut self) -> Self {
        if M::CONSUMER != self.name {
            self.mistakes.push(format!(
                "the handler of {:?} belongs to the consumer {:?}, not to {:?}",
                M::TYPE,
                M::CONSUMER,
                self.name
            ));
        }
        self.add::<M>(M::handler())
    }

    /// Handles a message type with this function.
    #[must_use]
    pub fn handle_with<M, Args>(self, function: impl HandlerFn<D, M, Args>) -> Self
    where
        M: Message,
        Args: Arguments + 'static,
    {
        self.add::<M>(Handler::function::<M, Args, _>(function))
    }

    /// Handles a message type with a method of a consumer struct; `#[derive(Consumer)]` calls it.
    #[must_use]
    pub fn handle_with_method<S, M, Args>(
        self,
        consumer: &Arc<S>,
        method: impl MethodFn<D, S, M, Args>,
    ) -> Self
    where
        S: Send + Sync + 'static,
        M: Message,
        Args: Arguments + 'static,
    {
        self.add::<M>(Handler::method::<S, M, Args, _>(consumer.clone(), method))
    }

    /// Sets the number of partitions, 1 to 64; 8 by default. It is a wish: all processes of a
    /// consumer have the same number, and it changes when all of them wish another one
    /// ([`crate::layout`]).
    #[must_use]
    pub fn partitions(mut self, partitions: u8) -> Self {
        self.partitions = partitions;
        self
    }

    /// Shares a value with this consumer's handlers, as [`super::Data`].
    #[must_use]
    pub fn data<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.state.insert(value);
        self
    }

    /// How often and when this consumer's messages are tried; the runtime's policy by default
    /// ([`crate::Builder::retry`]). A message's attribute and [`Consumer::retry_for`] take
    /// precedence.
    #[must_use]
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = Some(policy);
        self
    }

    /// How often and when messages of this type are tried at this consumer: over everything else
    /// that says so, the message's attribute too.
    #[must_use]
    pub fn retry_for<M: Message>(mut self, policy: RetryPolicy) -> Self {
        self.retry_for.insert(M::TYPE, policy);
        self
    }

    pub(crate) fn add<M: Message>(mut self, handler: Handler<D>) -> Self {
        let handling = Handling {
            handler,
            version: M::VERSION,
            parts: M::RETRY,
            own: None,
        };
        if self.handlings.insert(M::TYPE, handling).is_some() {
            self.mistakes.push(format!(
                "the consumer {:?} has two handlers for the message type {:?}",
                self.name,
                M::TYPE
            ));
        }
        self
    }

    /// The message types that it takes, with the versions that it knows.
    pub(crate) fn types(&self) -> Vec<(MessageType, u32)> {
        let type_of = |name| MessageType::from_static(name).expect("the derive macro checked it");
        self.handlings
            .iter()
            .map(|(name, handling)| (type_of(name), handling.version))
            .collect()
    }

    /// Its handlers with the policies that hold for them, under the runtime's.
    pub(crate) fn into_handlers(self, runtimes: RetryPolicy) -> Handlers<D> {
        let mut handlings = self.handlings;
        for (message_type, policy) in self.retry_for {
            if let Some(handling) = handlings.get_mut(message_type) {
                handling.own = Some(policy);
            }
        }
        Handlers::new(handlings, self.retry.unwrap_or(runtimes))
    }

    /// Mistakes in policies; the runtime's own are its builder's to report.
    fn policy_mistakes(&self, runtimes: RetryPolicy) -> Vec<String> {
        let name = &self.name;
        let say = move |of: String, mistake: String| format!("consumer {name:?}, {of}: {mistake}");
        let mut mistakes = Vec::new();
        if let Some(policy) = &self.retry {
            let found = policy.mistakes().into_iter();
            mistakes.extend(found.map(|mistake| say("retry".to_owned(), mistake)));
        }
        for (message_type, policy) in &self.retry_for {
            let of = format!("retry_for {message_type:?}");
            let found = policy.mistakes().into_iter();
            mistakes.extend(found.map(|mistake| say(of.clone(), mistake)));
            if !self.handlings.contains_key(message_type) {
                mistakes.push(say(of, "it has no handler of this type".to_owned()));
            }
        }
        let under = self.retry.unwrap_or(runtimes);
        if !under.mistakes().is_empty() {
            return mistakes;
        }
        // What the attribute says is in order for itself; with the rest of the policy it may not be.
        for (message_type, handling) in &self.handlings {
            if !self.retry_for.contains_key(message_type) {
                let of = format!("the attribute of {message_type:?} within its policy");
                let found = handling.policy(under).mistakes().into_iter();
                mistakes.extend(found.map(|mistake| say(of.clone(), mistake)));
            }
        }
        mistakes
    }

    /// All mistakes of this consumer under the runtime's policy, each as one sentence with field,
    /// value and limit.
    pub(crate) fn mistakes(&self, runtimes: RetryPolicy) -> Vec<String> {
        let mut mistakes = self.mistakes.clone();
        mistakes.extend(self.policy_mistakes(runtimes));
        if !is_valid_name(&self.name) {
            mistakes.push(format!(
                "consumer name {:?}: it must be 1 to {NAME_BYTES_MAX} of a-z, A-Z, 0-9, '.', '_' and '-'",
                self.name
            ));
        }
        if self.partitions == 0 || self.partitions > PARTITIONS_MAX {
            mistakes.push(format!(
                "consumer {:?}: {} partitions; it must be 1 to {PARTITIONS_MAX}, the number of slots",
                self.name, self.partitions
            ));
        }
        if self.handlings.is_empty() {
            mistakes.push(format!("consumer {:?} handles no message type", self.name));
        }
        for (message_type, handling) in &self.handlings {
            if let Err(error) = handling.handler.check(&self.state) {
                mistakes.push(format!(
                    "consumer {:?}, handler of {message_type:?}: {error}",
                    self.name
                ));
            }
        }
        mistakes
    }
}

/// Whether a consumer may have this name. `#[derive(Message)]` and `#[derive(Consumer)]` refuse
/// others at compile time.
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(allowed)
}

impl<D: Database> fmt::Debug for Consumer<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer")
            .field("name", &self.name)
            .field("partitions", &self.partitions)
            .field("handles", &self.handlings.keys())
            .finish_non_exhaustive()
    }
}
