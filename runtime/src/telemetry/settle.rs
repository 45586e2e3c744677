use tracing::Span;

use super::Client;
use super::by_trace::{ByTrace, Group};
use super::error_type::ErrorType;
use super::span::{TARGET, messaging_span};
use crate::broker::{BrokerError, Delivery, PartitionQueue};

/// Acknowledges deliveries inside `settle` spans, after the commit. On a broker that acknowledges
/// inside the handling transaction there is nothing to time, and no span.
pub(crate) async fn settling(
    client: &Client,
    queue: &PartitionQueue,
    deliveries: &[Delivery],
    acknowledge: impl Future<Output = Result<(), BrokerError>>,
) -> Result<(), BrokerError> {
    let mut spans = begin(client, queue, deliveries);
    let settled = acknowledge.await;
    if let Err(error) = &settled {
        spans.fail_all(error.error_type(), error);
    }
    settled
}

fn begin(client: &Client, queue: &PartitionQueue, deliveries: &[Delivery]) -> ByTrace {
    if !client.settles() || !tracing::span_enabled!(target: TARGET, tracing::Level::DEBUG) {
        return ByTrace::default();
    }
    let envelopes = deliveries
        .iter()
        .map(|delivery| delivery.message.as_ref().ok());
    ByTrace::begin(envelopes, |group| span(client, queue, group))
}

fn span(client: &Client, queue: &PartitionQueue, group: &Group<'_>) -> Span {
    let destination = client.from(group.messages(), queue);
    messaging_span!(
        [parent: None,] DEBUG,
        "settle",
        "client",
        client,
        destination,
        "messaging.destination.name" = destination.name(),
        "messaging.destination.partition.id" = queue.number.to_string(),
        "messaging.consumer.group.name" = queue.consumer.as_str(),
        "messaging.rabbitmq.destination.routing_key" = destination.routing_key(),
        "messaging.batch.message_count" = group.batch_count(),
        "messaging.message.id" = group.message_id(),
        "messaging.message.conversation_id" = group.conversation_id(),
    )
}
