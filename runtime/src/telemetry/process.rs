use std::error::Error;

use tracing::field::Empty;
use tracing::{Instrument as _, Span};

use super::destination::Messages;
use super::error_type::ErrorType;
use super::span::{fail, messaging_span};
use super::{Client, remote};
use crate::broker::PartitionQueue;
use crate::message::{CORRELATION_ID, Envelope};
use crate::supervision::error_chain;

/// One call of a handler as a `process` span: the child of the message's `create` span, and linked
/// to it.
pub(crate) struct Process {
    span: Span,
}

impl Process {
    /// Begins the span of a try, counted from 1.
    pub(crate) fn new(
        client: &Client,
        queue: &PartitionQueue,
        envelope: &Envelope,
        attempt: u32,
    ) -> Self {
        let destination = client.from(Messages::One(envelope), queue);
        let span = messaging_span!(
            [parent: None,] INFO,
            "process",
            "consumer",
            client,
            destination,
            "messaging.destination.name" = destination.name(),
            "messaging.destination.partition.id" = queue.number.to_string(),
            "messaging.consumer.group.name" = queue.consumer.as_str(),
            "messaging.rabbitmq.destination.routing_key" = destination.routing_key(),
            "messaging.message.id" = envelope.id.to_string(),
            "messaging.message.conversation_id" = envelope.headers.get(CORRELATION_ID),
            "posta.attempt" = attempt,
            "posta.rolled_back" = Empty,
        );
        remote::continue_from(&span, &envelope.headers);
        remote::link(&span, &envelope.headers);
        Self { span }
    }

    /// Runs the call inside the span: what the handler logs and enqueues belongs to it.
    pub(crate) async fn run<E: ErrorType + Error + 'static>(
        &self,
        call: impl Future<Output = Result<(), E>>,
    ) -> Result<(), E> {
        let outcome = call.instrument(self.span.clone()).await;
        if let Err(error) = &outcome
            && !self.span.is_disabled()
        {
            fail(&self.span, error.error_type(), &error_chain(error));
        }
        outcome
    }
}

/// The calls of one transaction. Their spans stay open until its end, so that one whose effects
/// were undone can say so; their duration is that of the calls.
#[derive(Default)]
pub(crate) struct Processed {
    calls: Vec<Process>,
}

impl Processed {
    /// Adds a call that went well.
    pub(crate) fn push(&mut self, call: Process) {
        if !call.span.is_disabled() {
            self.calls.push(call);
        }
    }

    /// Says that the transaction has committed.
    pub(crate) fn committed(&mut self) {
        self.calls.clear();
    }
}

impl Drop for Processed {
    fn drop(&mut self) {
        for call in &self.calls {
            call.span.record("posta.rolled_back", true);
        }
    }
}
