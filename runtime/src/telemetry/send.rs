use std::collections::HashSet;

use tracing::Span;

use super::Client;
use super::by_trace::{ByTrace, Group};
use super::error_type::ErrorType;
use super::span::{TARGET, messaging_span};
use crate::broker::{BrokerError, PublishOutcome};
use crate::store::{OutboxRow, RowId, StoreError};

/// Publishes a wave inside `send` spans: from before the first publish until the last confirm is
/// there.
pub(crate) async fn sending(
    client: &Client,
    wave: &[OutboxRow],
    publish: impl Future<Output = Result<Vec<PublishOutcome>, BrokerError>>,
) -> Result<Vec<PublishOutcome>, BrokerError> {
    let mut spans = begin(client, wave);
    let published = publish.await;
    match &published {
        Ok(outcomes) => {
            for (message, outcome) in outcomes.iter().enumerate() {
                match outcome {
                    PublishOutcome::Confirmed => {}
                    PublishOutcome::Returned(text) => spans.fail(message, "unroutable", text),
                    PublishOutcome::Refused(text) => spans.fail(message, "refused", text),
                    PublishOutcome::TooLarge(text) => spans.fail(message, "too_large", text),
                    PublishOutcome::Malformed(text) => spans.fail(message, "malformed", text),
                    PublishOutcome::Unknown => {
                        spans.fail(message, "unknown", &"the channel failed first");
                    }
                }
            }
        }
        Err(error) => spans.fail_all(error.error_type(), error),
    }
    published
}

/// Routes rows into the queues of the database broker inside `send` spans: within the settling
/// transaction, before its commit.
pub(crate) async fn routing(
    client: &Client,
    rows: &[OutboxRow],
    route: impl Future<Output = Result<Vec<RowId>, StoreError>>,
) -> Result<Vec<RowId>, StoreError> {
    let mut spans = begin(client, rows);
    let routed = route.await;
    match &routed {
        Ok(routed) if routed.len() == rows.len() => {}
        Ok(routed) => {
            let routed: HashSet<&RowId> = routed.iter().collect();
            for (message, row) in rows.iter().enumerate() {
                if !routed.contains(&row.id) {
                    spans.fail(
                        message,
                        "unroutable",
                        &"no consumer takes this message type",
                    );
                }
            }
        }
        Err(error) => spans.fail_all(error.error_type(), error),
    }
    routed
}

fn begin(client: &Client, rows: &[OutboxRow]) -> ByTrace {
    if rows.is_empty() || !tracing::span_enabled!(target: TARGET, tracing::Level::INFO) {
        return ByTrace::default();
    }
    let envelopes = rows.iter().map(|row| row.message.as_ref().ok());
    ByTrace::begin(envelopes, |group| span(client, group))
}

fn span(client: &Client, group: &Group<'_>) -> Span {
    let destination = client.to(group.messages());
    messaging_span!(
        [parent: None,] INFO,
        "send",
        "client",
        client,
        destination,
        "messaging.destination.name" = destination.name(),
        "messaging.rabbitmq.destination.routing_key" = destination.routing_key(),
        "messaging.batch.message_count" = group.batch_count(),
        "messaging.message.id" = group.message_id(),
        "messaging.message.conversation_id" = group.conversation_id(),
    )
}
