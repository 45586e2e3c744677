use lapin::options::BasicPublishOptions;
use lapin::types::ShortString;
use lapin::{BasicProperties, Confirmation};

use super::properties;
use crate::broker::PublishOutcome;
use crate::message::Envelope;

/// What a content header's frame holds beside properties and headers, in bytes: the frame's own
/// eight, class, weight, body size.
const CONTENT_HEADER_BYTES: usize = 8 + 2 + 2 + 8;

/// What a message must keep to, so that it does not cost the channel and its neighbours with it.
pub(super) struct Limits<'a> {
    /// Largest frame of the connection, in bytes.
    pub(super) frame_bytes_max: usize,
    /// Largest message that is offered to the broker, in bytes.
    pub(super) message_bytes_max: usize,
    /// What the broker takes at most, in bytes, as far as it has said so.
    pub(super) broker_message_bytes_max: usize,
    /// The property `app_id`.
    pub(super) app_id: Option<&'a str>,
}

/// A message that keeps the limits, ready to be sent.
pub(super) struct Offer<'a> {
    /// Its place in the wave.
    pub(super) index: usize,
    routing_key: ShortString,
    payload: &'a [u8],
    properties: BasicProperties,
}

impl<'a> Offer<'a> {
    /// Prepares the message at this place of a wave.
    ///
    /// # Errors
    /// Why it must not be sent: `TooLarge` or `Malformed`.
    pub(super) fn new(
        index: usize,
        envelope: &'a Envelope,
        limits: &Limits<'_>,
    ) -> Result<Self, PublishOutcome> {
        let encoded =
            properties::encode(envelope, limits.app_id).map_err(PublishOutcome::Malformed)?;
        let header_bytes = encoded.bytes + CONTENT_HEADER_BYTES;
        if header_bytes > limits.frame_bytes_max {
            return Err(PublishOutcome::TooLarge(format!(
                "its properties and headers need a frame of {header_bytes} bytes, more than the {} of the connection",
                limits.frame_bytes_max
            )));
        }
        let bytes = envelope.payload.len() + encoded.bytes;
        for (limit, whose) in [
            (limits.message_bytes_max, "are configured"),
            (limits.broker_message_bytes_max, "the broker takes"),
        ] {
            if bytes > limit {
                return Err(PublishOutcome::TooLarge(format!(
                    "it has {bytes} bytes with its properties, more than the {limit} that {whose}"
                )));
            }
        }
        let routing_key = format!("{}.{}", envelope.message_type, envelope.slot());
        Ok(Self {
            index,
            routing_key: ShortString::try_new(routing_key)
                .map_err(|error| PublishOutcome::Malformed(error.to_string()))?,
            payload: &envelope.payload,
            properties: encoded.properties,
        })
    }

    /// The payload's size.
    pub(super) fn bytes(&self) -> usize {
        self.payload.len()
    }

    /// Sends the message and waits for its confirm; gives back its place in the wave.
    pub(super) async fn send(
        self,
        channel: &lapin::Channel,
        exchange: ShortString,
    ) -> (usize, lapin::Result<Confirmation>) {
        let options = BasicPublishOptions {
            mandatory: true,
            immediate: false,
        };
        let sent = channel
            .basic_publish(
                exchange,
                self.routing_key,
                options,
                self.payload,
                self.properties,
            )
            .await;
        let confirmation = match sent {
            Ok(confirm) => confirm.await,
            Err(error) => Err(error),
        };
        (self.index, confirmation)
    }
}
