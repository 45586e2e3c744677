use std::borrow::Cow;

use tracing::Span;
use tracing::field::{Empty, display};

use super::Client;
use super::destination::Messages;
use super::error_type::ErrorType;
use super::span::{fail, messaging_span};
use crate::message::{CORRELATION_ID, Envelope, TRACEPARENT, TraceContext};

/// Makes an envelope inside a `create` span: the span's context is the one that `make` finds
/// current and writes into the headers.
pub(crate) fn create<E: ErrorType>(
    client: &Client,
    message_type: &str,
    make: impl FnOnce() -> Result<Envelope, E>,
) -> Result<Envelope, E> {
    let span = span(client, message_type);
    let made = span.in_scope(make);
    match &made {
        Ok(envelope) => describe(&span, client, envelope),
        Err(error) => fail(&span, error.error_type(), error),
    }
    made
}

/// Gives a creation context to an envelope that the application made itself, unless it has one:
/// that stays as it is, even a malformed one. An envelope whose headers have no room goes without.
pub(crate) fn adopt(client: &Client, mut envelope: Envelope) -> Envelope {
    if has_context(&envelope) {
        return envelope;
    }
    let span = span(client, envelope.message_type.as_str());
    let context = span.in_scope(TraceContext::current);
    let mut headers = envelope.headers.clone();
    match context.write(&mut headers) {
        Ok(()) => envelope.headers = headers,
        Err(error) => tracing::debug!(
            message_id = %envelope.id,
            error = &error as &dyn std::error::Error,
            "a message travels without its trace context"
        ),
    }
    describe(&span, client, &envelope);
    envelope
}

/// As [`adopt`] for several; they are copied only if one needs a context.
pub(crate) fn adopt_all<'a>(client: &Client, envelopes: &'a [Envelope]) -> Cow<'a, [Envelope]> {
    if envelopes.iter().all(has_context) {
        return Cow::Borrowed(envelopes);
    }
    let adopted = envelopes
        .iter()
        .map(|envelope| adopt(client, envelope.clone()));
    Cow::Owned(adopted.collect())
}

fn has_context(envelope: &Envelope) -> bool {
    envelope.headers.get(TRACEPARENT).is_some()
}

fn span(client: &Client, message_type: &str) -> Span {
    let destination = client.to(Messages::Type(message_type));
    messaging_span!(
        [] INFO,
        "create",
        "producer",
        client,
        destination,
        "messaging.destination.name" = Empty,
        "messaging.rabbitmq.destination.routing_key" = Empty,
        "messaging.message.id" = Empty,
        "messaging.message.conversation_id" = Empty,
    )
}

/// What is known only when the envelope is there.
fn describe(span: &Span, client: &Client, envelope: &Envelope) {
    if span.is_disabled() {
        return;
    }
    let destination = client.to(Messages::One(envelope));
    span.record("messaging.destination.name", destination.name());
    span.record(
        "messaging.rabbitmq.destination.routing_key",
        destination.routing_key(),
    );
    span.record("messaging.message.id", display(envelope.id));
    let conversation = envelope.headers.get(CORRELATION_ID);
    span.record("messaging.message.conversation_id", conversation);
}
