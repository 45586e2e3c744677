use crate::broker::PartitionQueue;
use crate::message::Envelope;

/// Which messages a span speaks of.
#[derive(Clone, Copy)]
pub(super) enum Messages<'a> {
    /// One.
    One(&'a Envelope),
    /// Several of one type, or one of which no more is known yet.
    Type(&'a str),
    /// Several of several types.
    Mixed,
}

/// The destination of messages, or with a queue their source, as spans name it.
///
/// With an exchange the parts are those of RabbitMQ's convention, `{exchange}:{routing key}` and
/// `{exchange}:{routing key}:{queue}`, less those that differ between the messages. Without one a
/// message type is itself the destination, since consumers subscribe to types, and the consumer's
/// name is the queue.
#[derive(Clone, Copy)]
pub(super) struct Destination<'a> {
    exchange: Option<&'a str>,
    messages: Messages<'a>,
    queue: Option<&'a PartitionQueue>,
}

impl<'a> Destination<'a> {
    pub(super) fn new(
        exchange: Option<&'a str>,
        messages: Messages<'a>,
        queue: Option<&'a PartitionQueue>,
    ) -> Self {
        Self {
            exchange,
            messages,
            queue,
        }
    }

    /// `{operation} {destination}`: as many different names as there are message types and
    /// consumers, not more.
    pub(super) fn span_name(&self, operation: &str) -> String {
        match self.template().or_else(|| self.name()) {
            Some(destination) => format!("{operation} {destination}"),
            None => operation.to_owned(),
        }
    }

    /// `messaging.destination.name`.
    pub(super) fn name(&self) -> Option<String> {
        let queue = self.queue.map(|queue| match self.exchange {
            Some(_) => queue.name(),
            None => queue.consumer.clone(),
        });
        let routed = match self.exchange {
            Some(_) => self.routing_key(),
            None => self.message_type().map(str::to_owned),
        };
        joined([self.exchange.map(str::to_owned), routed, queue])
    }

    /// `messaging.destination.template`: the name with what varies in braces, where something does.
    pub(super) fn template(&self) -> Option<String> {
        let exchange = self.exchange?;
        let routed = self.message_type().map(|name| format!("{name}.{{slot}}"));
        let queue = self
            .queue
            .map(|queue| format!("{}.{{layout}}.{{partition}}", queue.consumer));
        if routed.is_none() && queue.is_none() {
            return None;
        }
        joined([Some(exchange.to_owned()), routed, queue])
    }

    /// `messaging.rabbitmq.destination.routing_key`.
    pub(super) fn routing_key(&self) -> Option<String> {
        match (self.exchange, self.messages) {
            (Some(_), Messages::One(envelope)) => {
                Some(format!("{}.{}", envelope.message_type, envelope.slot()))
            }
            _ => None,
        }
    }

    fn message_type(&self) -> Option<&'a str> {
        match self.messages {
            Messages::One(envelope) => Some(envelope.message_type.as_str()),
            Messages::Type(name) => Some(name),
            Messages::Mixed => None,
        }
    }
}

fn joined(parts: [Option<String>; 3]) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{MessageType, OrderingKey};
    use crate::store::Generation;

    fn envelope() -> Envelope {
        Envelope::builder(MessageType::new("order.placed").unwrap(), "")
            .key(Some(OrderingKey::new("order-1").unwrap()))
            .build()
            .unwrap()
    }

    fn queue() -> PartitionQueue {
        PartitionQueue {
            consumer: "billing".to_owned(),
            generation: Generation::first(8),
            number: 1,
        }
    }

    fn said(destination: &Destination<'_>) -> (String, String, String) {
        (
            destination.span_name("x"),
            destination.name().unwrap_or_default(),
            destination.routing_key().unwrap_or_default(),
        )
    }

    fn texts(span: &str, name: &str, routing_key: &str) -> (String, String, String) {
        (span.to_owned(), name.to_owned(), routing_key.to_owned())
    }

    #[test]
    fn with_an_exchange_names_are_those_of_the_convention() {
        let (envelope, queue) = (envelope(), queue());
        let exchange = Some("posta");
        let to = |messages| said(&Destination::new(exchange, messages, None));
        let from = |messages| said(&Destination::new(exchange, messages, Some(&queue)));
        assert_eq!(
            to(Messages::One(&envelope)),
            texts(
                "x posta:order.placed.{slot}",
                "posta:order.placed.11",
                "order.placed.11"
            )
        );
        assert_eq!(
            to(Messages::Type("order.placed")),
            texts("x posta:order.placed.{slot}", "posta", "")
        );
        assert_eq!(to(Messages::Mixed), texts("x posta", "posta", ""));
        assert_eq!(
            from(Messages::One(&envelope)),
            texts(
                "x posta:order.placed.{slot}:billing.{layout}.{partition}",
                "posta:order.placed.11:billing.1.1",
                "order.placed.11"
            )
        );
        assert_eq!(
            from(Messages::Mixed),
            texts(
                "x posta:billing.{layout}.{partition}",
                "posta:billing.1.1",
                ""
            )
        );
    }

    #[test]
    fn without_an_exchange_the_type_is_the_destination() {
        let (envelope, queue) = (envelope(), queue());
        let to = |messages| said(&Destination::new(None, messages, None));
        let from = |messages| said(&Destination::new(None, messages, Some(&queue)));
        let placed = texts("x order.placed", "order.placed", "");
        assert_eq!(to(Messages::One(&envelope)), placed);
        assert_eq!(to(Messages::Type("order.placed")), placed);
        assert_eq!(to(Messages::Mixed), texts("x", "", ""));
        assert_eq!(
            from(Messages::One(&envelope)),
            texts("x order.placed:billing", "order.placed:billing", "")
        );
        assert_eq!(from(Messages::Mixed), texts("x billing", "billing", ""));
    }
}
