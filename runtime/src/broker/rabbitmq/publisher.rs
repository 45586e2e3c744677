use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use lapin::Confirmation;
use lapin::options::ConfirmSelectOptions;
use lapin::types::ShortString;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::channel::Channel;
use super::classify::{self, Purpose};
use super::connection::Health;
use super::offer::{Limits, Offer};
use super::returns::Returns;
use super::{Shared, topology};
use crate::broker::{BrokerError, BrokerErrorKind, PublishOutcome, Publisher};
use crate::store::{Database, OutboxRow};
use crate::supervision::crash_point;

/// Payload bytes of one wave that are in flight at a time: lapin keeps a copy of each until it is
/// written. One message may have more.
const IN_FLIGHT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// How long after a channel's first error the others are waited for, to report the one that tells
/// most.
const POST_MORTEM: Duration = Duration::from_secs(1);

/// Publishes waves over a channel of its own, in confirm mode.
pub struct RabbitMqPublisher {
    shared: Arc<Shared>,
    channel: Channel,
    frame_bytes_max: usize,
    /// A wave failed or was cancelled: what is still under way on the channel could not be told
    /// from the next wave.
    spent: bool,
}

/// What the broker said of a wave: whether each message's confirm was positive, and what came back.
struct Verdicts {
    positive: Vec<Option<bool>>,
    returns: Returns,
}

type InFlight<'a> = FuturesUnordered<BoxFuture<'a, (usize, lapin::Result<Confirmation>)>>;

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
            spent: false,
        })
    }

    /// Publishes a wave; see [`Publisher::publish`], whose contract it keeps.
    ///
    /// # Cancel safety
    /// Not safe: after a cancelled call the publisher only fails.
    ///
    /// # Errors
    /// `Blocked` at once when the broker blocks the connection, before or within the wave;
    /// `Timeout` when not every confirm arrives in time; `Closed` with the broker's text when it
    /// closes the channel; `Unavailable` when the connection is lost. The publisher only fails from
    /// then on.
    pub async fn publish_wave(
        &mut self,
        wave: &[OutboxRow],
    ) -> Result<Vec<PublishOutcome>, BrokerError> {
        let deadline = Instant::now() + self.shared.options.publish_timeout;
        let mut health = self.channel.connection().watch();
        refuse_unless_open(&mut health)?;
        self.channel.ensure_open("publish")?;
        if std::mem::replace(&mut self.spent, true) {
            return Err(BrokerError::new("publish", BrokerErrorKind::Closed)
                .with_source("an earlier wave of this publisher failed or was cancelled"));
        }
        let (offers, mut outcomes) = self.offers(wave);
        let offered: Vec<usize> = offers.iter().map(|offer| offer.index).collect();
        let verdicts = self
            .verdicts(offers, wave.len(), &mut health, deadline)
            .await?;
        judge(wave, &offered, verdicts, &mut outcomes)?;
        self.spent = false;
        Ok(outcomes)
    }

    /// What can be offered to the broker, and the outcomes of what cannot.
    fn offers<'a>(&self, wave: &'a [OutboxRow]) -> (VecDeque<Offer<'a>>, Vec<PublishOutcome>) {
        let shared = &self.shared;
        let limits = Limits {
            frame_bytes_max: self.frame_bytes_max,
            message_bytes_max: shared.options.message_bytes_max,
            broker_message_bytes_max: shared.broker_message_bytes_max.load(Ordering::Relaxed),
            app_id: shared.options.app_id.as_deref(),
        };
        let mut outcomes = vec![PublishOutcome::Unknown; wave.len()];
        let mut offers = VecDeque::with_capacity(wave.len());
        for (index, row) in wave.iter().enumerate() {
            let offer = match &row.message {
                Ok(envelope) => Offer::new(index, envelope, &limits),
                Err(malformed) => Err(PublishOutcome::Malformed(malformed.reason.clone())),
            };
            match offer {
                Ok(offer) => offers.push_back(offer),
                Err(outcome) => outcomes[index] = outcome,
            }
        }
        (offers, outcomes)
    }

    /// Sends all and waits for all confirms; an error if a single one does not come.
    async fn verdicts(
        &self,
        mut waiting: VecDeque<Offer<'_>>,
        messages: usize,
        health: &mut watch::Receiver<Health>,
        deadline: Instant,
    ) -> Result<Verdicts, BrokerError> {
        let exchange = ShortString::from(self.shared.options.exchange.as_str());
        let mut bytes_at = vec![0; messages];
        for offer in &waiting {
            bytes_at[offer.index] = offer.bytes();
        }
        let mut verdicts = Verdicts {
            positive: vec![None; messages],
            returns: Returns::default(),
        };
        let (mut in_flight, mut bytes) = (InFlight::new(), 0);
        loop {
            while let Some(next) = waiting.front()
                && (in_flight.is_empty() || bytes + next.bytes() <= IN_FLIGHT_BYTES_MAX)
                && let Some(offer) = waiting.pop_front()
            {
                bytes += offer.bytes();
                in_flight.push(Box::pin(offer.send(self.channel.lapin(), exchange.clone())));
            }
            tokio::select! {
                biased;
                confirm = in_flight.next() => match confirm {
                    None => return Ok(verdicts),
                    Some((place, Ok(confirmation))) => {
                        // Sent, and nothing of it is known to be confirmed.
                        crash_point!("dispatch.sent");
                        bytes -= bytes_at[place];
                        verdicts.positive[place] = Some(verdicts.returns.note(confirmation));
                    }
                    Some((_, Err(first))) => return Err(self.post_mortem(first, in_flight).await),
                },
                changed = health.changed() => {
                    refuse_unless_open(health)?;
                    if changed.is_err() {
                        return Err(BrokerError::new("publish", BrokerErrorKind::Unavailable)
                            .with_source("the connection has ended"));
                    }
                }
                () = tokio::time::sleep_until(deadline) => {
                    let missing = in_flight.len() + waiting.len();
                    let waited = self.shared.options.publish_timeout;
                    return Err(BrokerError::new("publish", BrokerErrorKind::Timeout).with_source(
                        format!("{missing} of {messages} confirms are missing after {waited:?}"),
                    ));
                }
            }
        }
    }

    /// The error that tells most among all that the end of a channel leaves behind, and what is to
    /// be learned from it.
    async fn post_mortem(&self, first: lapin::Error, mut in_flight: InFlight<'_>) -> BrokerError {
        let end = Instant::now() + POST_MORTEM;
        let mut tells_most = first;
        while let Ok(Some((_, confirm))) = timeout_at(end, in_flight.next()).await {
            match confirm {
                Err(error) if classify::weight(&error) > classify::weight(&tells_most) => {
                    tells_most = error;
                }
                _ => {}
            }
        }
        if let Some(limit) = classify::message_bytes_max(&tells_most) {
            self.shared
                .broker_message_bytes_max
                .fetch_min(limit, Ordering::Relaxed);
            tracing::warn!(
                limit,
                "RabbitMQ takes no messages with more bytes than this"
            );
        }
        match self.channel.connection().health() {
            Health::Lost(reason) if classify::weight(&tells_most) < 2 => {
                BrokerError::new("publish", BrokerErrorKind::Unavailable).with_source(reason)
            }
            _ => classify::broker_error("publish", Purpose::Use, &tells_most),
        }
    }
}

/// Confirmed is what has a positive confirm and did not come back.
fn judge(
    wave: &[OutboxRow],
    offered: &[usize],
    mut verdicts: Verdicts,
    outcomes: &mut [PublishOutcome],
) -> Result<(), BrokerError> {
    for &index in offered {
        let Ok(envelope) = &wave[index].message else {
            continue;
        };
        let returned = verdicts.returns.take(&envelope.id.to_string());
        outcomes[index] = match (returned, verdicts.positive[index]) {
            (Some(reason), _) => PublishOutcome::Returned(reason),
            (None, Some(true)) => PublishOutcome::Confirmed,
            (None, Some(false)) => {
                PublishOutcome::Refused("the broker could not take it (basic.nack)".to_owned())
            }
            (None, None) => PublishOutcome::Unknown,
        };
    }
    let strangers = verdicts.returns.left();
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
