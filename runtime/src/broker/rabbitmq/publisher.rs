use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::types::ShortString;
use lapin::{BasicProperties, Confirmation};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::channel::Channel;
use super::classify::{self, Purpose};
use super::connection::Health;
use super::returns::Returns;
use super::{Shared, properties, topology};
use crate::broker::{BrokerError, BrokerErrorKind, PublishOutcome, Publisher};
use crate::message::Envelope;
use crate::store::{Database, OutboxRow};

/// What a content header's frame holds beside properties and headers, in bytes: the frame's own eight, class, weight, body size.
const CONTENT_HEADER_BYTES: usize = 8 + 2 + 2 + 8;
/// How long after a channel's first error the others are waited for, to report the one that tells most.
const POST_MORTEM: Duration = Duration::from_secs(1);

/// Publishes waves over a channel of its own, in confirm mode.
pub struct RabbitMqPublisher {
    shared: Arc<Shared>,
    channel: Channel,
    frame_bytes_max: usize,
}

/// A message that passed all checks.
struct Offer<'a> {
    index: usize,
    routing_key: ShortString,
    payload: &'a [u8],
    properties: BasicProperties,
}

type InFlight<'a> = FuturesUnordered<BoxFuture<'a, lapin::Result<(usize, Confirmation)>>>;

impl RabbitMqPublisher {
    pub(super) async fn open(shared: Arc<Shared>) -> Result<Self, BrokerError> {
        let connection = shared.publishing().await?;
        if let Health::Blocked(reason) = connection.health() {
            return Err(blocked(reason));
        }
        let frame_bytes_max = connection.lapin().configuration().frame_max() as usize;
        let channel = Channel::open(connection).await?;
        topology::provide_exchange(&channel, &shared.options).await?;
        let confirms = channel
            .lapin()
            .confirm_select(ConfirmSelectOptions::default());
        channel
            .ask("ask for confirms", Purpose::Use, confirms)
            .await?;
        Ok(Self {
            shared,
            channel,
            frame_bytes_max,
        })
    }

    /// Publishes a wave; see [`Publisher::publish`], whose contract it keeps.
    ///
    /// # Cancel safety
    /// Not safe: after a cancelled call the publisher must be dropped.
    ///
    /// # Errors
    /// `Blocked` at once when the broker blocks the connection, before or within the wave; `Timeout` when not every confirm arrives in
    /// time; `Closed` with the broker's text when it closes the channel; `Unavailable` when the connection is lost.
    pub async fn publish_wave(
        &mut self,
        wave: &[OutboxRow],
    ) -> Result<Vec<PublishOutcome>, BrokerError> {
        let deadline = Instant::now() + self.shared.options.publish_timeout;
        let mut health = self.channel.connection().watch();
        refuse_unless_open(&mut health)?;
        self.channel.ensure_open("publish")?;

        let mut outcomes = vec![PublishOutcome::Unknown; wave.len()];
        let mut offers = Vec::with_capacity(wave.len());
        for (index, row) in wave.iter().enumerate() {
            let offer = match &row.message {
                Ok(envelope) => self.offer(index, envelope),
                Err(malformed) => Err(malformed.reason.clone()),
            };
            match offer {
                Ok(offer) => offers.push(offer),
                Err(reason) => outcomes[index] = PublishOutcome::Refused(reason),
            }
        }
        let offered: Vec<usize> = offers.iter().map(|offer| offer.index).collect();
        let in_flight: InFlight<'_> = offers
            .into_iter()
            .map(|offer| Box::pin(send(&self.channel, &self.shared.options.exchange, offer)) as _)
            .collect();
        let confirmed = self
            .confirms(in_flight, wave.len(), &mut health, deadline)
            .await?;
        self.judge(wave, &offered, confirmed, &mut outcomes)?;
        Ok(outcomes)
    }

    /// Checks all that would cost the channel, and with it the neighbours, if the broker had to refuse it.
    fn offer<'a>(&self, index: usize, envelope: &'a Envelope) -> Result<Offer<'a>, String> {
        let options = &self.shared.options;
        let encoded = properties::encode(envelope, options.app_id.as_deref())?;
        let header_bytes = encoded.bytes + CONTENT_HEADER_BYTES;
        if header_bytes > self.frame_bytes_max {
            return Err(format!(
                "its properties and headers need a frame of {header_bytes} bytes, more than the {} of the connection",
                self.frame_bytes_max
            ));
        }
        let bytes = envelope.payload.len() + encoded.bytes;
        let learned = self.shared.broker_message_bytes_max.load(Ordering::Relaxed);
        if bytes > learned.min(options.message_bytes_max) {
            let (limit, whose) = match learned < options.message_bytes_max {
                true => (learned, "the broker takes"),
                false => (options.message_bytes_max, "are configured"),
            };
            return Err(format!(
                "it has {bytes} bytes with its properties, more than the {limit} that {whose}"
            ));
        }
        let routing_key = format!("{}.{}", envelope.message_type, envelope.slot());
        Ok(Offer {
            index,
            routing_key: ShortString::try_new(routing_key).map_err(|error| error.to_string())?,
            payload: &envelope.payload,
            properties: encoded.properties,
        })
    }

    /// Waits for all confirms; an error if a single one does not come.
    async fn confirms(
        &self,
        mut in_flight: InFlight<'_>,
        messages: usize,
        health: &mut watch::Receiver<Health>,
        deadline: Instant,
    ) -> Result<(Vec<Option<bool>>, Returns), BrokerError> {
        let (mut positive, mut returns) = (vec![None; messages], Returns::default());
        loop {
            tokio::select! {
                biased;
                confirm = in_flight.next() => match confirm {
                    None => return Ok((positive, returns)),
                    Some(Ok((index, confirmation))) => {
                        positive[index] = Some(returns.note(confirmation));
                    }
                    Some(Err(first)) => return Err(self.post_mortem(first, in_flight).await),
                },
                changed = health.changed() => {
                    refuse_unless_open(health)?;
                    if changed.is_err() {
                        self.channel.ensure_open("publish")?;
                    }
                }
                () = tokio::time::sleep_until(deadline) => {
                    let waited = self.shared.options.publish_timeout;
                    return Err(BrokerError::new("publish", BrokerErrorKind::Timeout).with_source(
                        format!("{} of {messages} confirms are missing after {waited:?}", in_flight.len()),
                    ));
                }
            }
        }
    }

    /// The error that tells most among all that the end of a channel leaves behind, and what is to be learned from it.
    async fn post_mortem(&self, first: lapin::Error, in_flight: InFlight<'_>) -> BrokerError {
        let others = in_flight
            .filter_map(async |confirm| confirm.err())
            .collect::<Vec<_>>();
        let others = timeout(POST_MORTEM, others).await.unwrap_or_default();
        let tells_most = others.into_iter().fold(first, |best, next| {
            match classify::weight(&next) > classify::weight(&best) {
                true => next,
                false => best,
            }
        });
        if let Some(limit) = classify::message_bytes_max(&tells_most) {
            self.shared
                .broker_message_bytes_max
                .fetch_min(limit, Ordering::Relaxed);
            tracing::warn!(
                limit,
                "RabbitMQ takes no larger messages than this many bytes"
            );
        }
        match self.channel.connection().health() {
            Health::Lost(reason) if classify::weight(&tells_most) < 2 => {
                BrokerError::new("publish", BrokerErrorKind::Unavailable).with_source(reason)
            }
            _ => classify::broker_error("publish", Purpose::Use, &tells_most),
        }
    }

    /// Confirmed is what has a positive confirm and did not come back.
    fn judge(
        &self,
        wave: &[OutboxRow],
        offered: &[usize],
        (positive, mut returns): (Vec<Option<bool>>, Returns),
        outcomes: &mut [PublishOutcome],
    ) -> Result<(), BrokerError> {
        for &index in offered {
            let Ok(envelope) = &wave[index].message else {
                continue;
            };
            outcomes[index] = match (returns.take(&envelope.id.to_string()), positive[index]) {
                (Some(reason), _) => PublishOutcome::Returned(reason),
                (None, Some(true)) => PublishOutcome::Confirmed,
                (None, Some(false)) => {
                    PublishOutcome::Refused("the broker could not take it (basic.nack)".to_owned())
                }
                (None, None) => PublishOutcome::Unknown,
            };
        }
        let strangers = returns.left();
        if strangers.is_empty() {
            return Ok(());
        }
        // Nobody published these over this channel; what else is wrong with it cannot be known.
        Err(
            BrokerError::new("publish", BrokerErrorKind::Closed).with_source(format!(
                "messages came back that were not sent: {strangers:?}"
            )),
        )
    }
}

async fn send<'a>(
    channel: &'a Channel,
    exchange: &'a str,
    offer: Offer<'a>,
) -> lapin::Result<(usize, Confirmation)> {
    let options = BasicPublishOptions {
        mandatory: true,
        immediate: false,
    };
    let confirm = channel
        .lapin()
        .basic_publish(
            exchange.into(),
            offer.routing_key,
            options,
            offer.payload,
            offer.properties,
        )
        .await?;
    Ok((offer.index, confirm.await?))
}

fn refuse_unless_open(health: &mut watch::Receiver<Health>) -> Result<(), BrokerError> {
    match &*health.borrow_and_update() {
        Health::Open => Ok(()),
        Health::Blocked(reason) => Err(blocked(reason.as_str())),
        Health::Lost(reason) => {
            Err(BrokerError::new("publish", BrokerErrorKind::Unavailable)
                .with_source(reason.as_str()))
        }
    }
}

fn blocked(reason: impl Into<String>) -> BrokerError {
    BrokerError::new("publish", BrokerErrorKind::Blocked).with_source(reason.into())
}

impl std::fmt::Debug for RabbitMqPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RabbitMqPublisher")
            .field("connection", self.channel.connection())
            .finish_non_exhaustive()
    }
}

impl<D: Database> Publisher<D> for RabbitMqPublisher {
    fn publish<'a>(
        &'a mut self,
        wave: &'a [OutboxRow],
    ) -> BoxFuture<'a, Result<Vec<PublishOutcome>, BrokerError>> {
        Box::pin(self.publish_wave(wave))
    }
}
