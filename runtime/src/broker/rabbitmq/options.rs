use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::{mistakes, url};
use crate::broker::{BrokerError, BrokerErrorKind};

/// What the driver does about exchanges, queues and bindings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provision {
    /// Declares them: what is missing is made, what differs is an error, nothing is deleted. Needs
    /// the right to configure.
    #[default]
    Declare,
    /// Only looks whether exchanges and queues exist. Arguments and bindings cannot be seen over
    /// AMQP and are taken on trust.
    Verify,
    /// Takes all on trust: others provide it.
    LeaveAlone,
}

/// How RabbitMQ is reached and used.
///
/// Setters never fail; [`RabbitMqOptions::check`] reports everything that is wrong at once. `Debug`
/// never shows the password.
///
/// ```
/// use posta::broker::rabbitmq::RabbitMqOptions;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let options = RabbitMqOptions::from_url("amqps://shop:secret@rabbit-1/%2f?cacertfile=/etc/ca.pem")?
///     .node("rabbit-2", 5671)
///     .prefetch(64);
/// assert!(!format!("{options:?}").contains("secret"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct RabbitMqOptions {
    pub(super) tls: bool,
    pub(super) nodes: Vec<(String, u16)>,
    pub(super) vhost: String,
    pub(super) username: String,
    pub(super) password: String,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) connection_name: String,
    pub(super) app_id: Option<String>,
    pub(super) exchange: String,
    pub(super) provision: Provision,
    pub(super) heartbeat: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) answer_timeout: Duration,
    pub(super) publish_timeout: Duration,
    pub(super) prefetch: u16,
    pub(super) delivery_limit: u32,
    pub(super) message_bytes_max: usize,
    pub(super) frame_bytes_max: u32,
}

impl RabbitMqOptions {
    /// Name of the exchange: `posta`.
    pub const EXCHANGE_DEFAULT: &'static str = "posta";
    /// Longest name of the exchange, in bytes: an AMQP short string, less the suffix `.dead`.
    pub const EXCHANGE_BYTES_MAX: usize = 255 - super::DEAD.len();
    /// Interval of heartbeats: 10 seconds.
    pub const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(10);
    /// Shortest interval of heartbeats: AMQP counts whole seconds, and 0 would switch them off.
    pub const HEARTBEAT_MIN: Duration = Duration::from_secs(1);
    /// Longest interval of heartbeats: a dead connection should not stay unnoticed for longer than
    /// twice this.
    pub const HEARTBEAT_MAX: Duration = Duration::from_secs(300);
    /// How long a connection may take to be made: 10 seconds.
    pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
    /// How long the broker may take to answer: 10 seconds.
    pub const ANSWER_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);
    /// How long a wave may take until all its messages are confirmed: 30 seconds.
    pub const PUBLISH_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
    /// Most unacknowledged deliveries of one partition: 256.
    pub const PREFETCH_DEFAULT: u16 = 256;
    /// Deliveries after which a quorum queue sets a message aside: 20, as RabbitMQ 4 has it by
    /// default.
    pub const DELIVERY_LIMIT_DEFAULT: u32 = 20;
    /// Largest message that is offered to the broker, properties included: 16 MiB, RabbitMQ 4's own
    /// default.
    pub const MESSAGE_BYTES_DEFAULT: usize = crate::message::limits::PAYLOAD_BYTES_MAX;
    /// Largest message that RabbitMQ can be configured to take: 512 MiB.
    pub const MESSAGE_BYTES_MAX: usize = 512 * 1024 * 1024;
    /// Smallest frame that AMQP allows, in bytes.
    pub const FRAME_BYTES_MIN: u32 = 4096;
    /// Largest frame that is asked for: 128 KiB, RabbitMQ's own default. The broker may insist on
    /// less.
    pub const FRAME_BYTES_DEFAULT: u32 = 128 * 1024;

    /// Options with a URL's values and defaults for the rest.
    ///
    /// `amqp://user:password@host:port/vhost`, or `amqps` for TLS. User, password, host, port and
    /// virtual host have AMQP's usual defaults (`guest`, `guest`, `localhost`, 5672 or 5671, `/`).
    /// The query may hold `heartbeat` (seconds), `connection_timeout` (milliseconds), `cacertfile`
    /// (a path) and `frame_max` (bytes), named as RabbitMQ's own clients name them.
    ///
    /// # Errors
    /// When it is no such URL or holds an unknown parameter; the error never shows user or
    /// password.
    pub fn from_url(url: &str) -> Result<Self, BrokerError> {
        url::parse(url)
    }

    pub(super) fn new(tls: bool, host: String, port: u16) -> Self {
        Self {
            tls,
            nodes: vec![(host, port)],
            vhost: "/".to_owned(),
            username: "guest".to_owned(),
            password: "guest".to_owned(),
            ca_file: None,
            connection_name: "posta".to_owned(),
            app_id: None,
            exchange: Self::EXCHANGE_DEFAULT.to_owned(),
            provision: Provision::default(),
            heartbeat: Self::HEARTBEAT_DEFAULT,
            connect_timeout: Self::CONNECT_TIMEOUT_DEFAULT,
            answer_timeout: Self::ANSWER_TIMEOUT_DEFAULT,
            publish_timeout: Self::PUBLISH_TIMEOUT_DEFAULT,
            prefetch: Self::PREFETCH_DEFAULT,
            delivery_limit: Self::DELIVERY_LIMIT_DEFAULT,
            message_bytes_max: Self::MESSAGE_BYTES_DEFAULT,
            frame_bytes_max: Self::FRAME_BYTES_DEFAULT,
        }
    }

    /// Adds another node of the same cluster. Each new connection tries the nodes in turn,
    /// beginning with a random one.
    #[must_use]
    pub fn node(mut self, host: impl Into<String>, port: u16) -> Self {
        self.nodes.push((host.into(), port));
        self
    }

    /// A PEM file with authorities that are trusted beside the system's own. Only with `amqps`.
    #[must_use]
    pub fn ca_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.ca_file = Some(path.into());
        self
    }

    /// The name that the broker shows for the connections, followed by what each is for; `posta` by
    /// default.
    #[must_use]
    pub fn connection_name(mut self, name: impl Into<String>) -> Self {
        self.connection_name = name.into();
        self
    }

    /// The AMQP property `app_id` of published messages; absent by default.
    #[must_use]
    pub fn app_id(mut self, app_id: impl Into<String>) -> Self {
        self.app_id = Some(app_id.into());
        self
    }

    /// The topic exchange that everything is published to; [`Self::EXCHANGE_DEFAULT`]. Services
    /// that talk to each other name the same.
    #[must_use]
    pub fn exchange(mut self, name: impl Into<String>) -> Self {
        self.exchange = name.into();
        self
    }

    /// What is done about exchanges, queues and bindings; [`Provision::Declare`] by default.
    #[must_use]
    pub fn provision(mut self, provision: Provision) -> Self {
        self.provision = provision;
        self
    }

    /// Interval of heartbeats, in whole seconds. A connection on which nothing arrives counts as
    /// lost after 2 to 2.5 intervals. From [`Self::HEARTBEAT_MIN`] to [`Self::HEARTBEAT_MAX`]; the
    /// broker may insist on less.
    #[must_use]
    pub fn heartbeat(mut self, interval: Duration) -> Self {
        self.heartbeat = interval;
        self
    }

    /// How long a connection may take to be made, over all nodes, TLS and authentication included.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// How long the broker may take to answer a declaration, a subscription or a close, and the
    /// network to take an acknowledgement.
    #[must_use]
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.answer_timeout = timeout;
        self
    }

    /// How long one wave may take until all its messages are confirmed.
    #[must_use]
    pub fn publish_timeout(mut self, timeout: Duration) -> Self {
        self.publish_timeout = timeout;
        self
    }

    /// Most deliveries of one partition that are unacknowledged at a time; they are held in memory.
    /// 0 means *no limit* to RabbitMQ and is refused.
    #[must_use]
    pub fn prefetch(mut self, count: u16) -> Self {
        self.prefetch = count;
        self
    }

    /// Deliveries without acknowledgement after which the broker moves a message to the consumer's
    /// dead queue. It is an argument of the queues: those that exist already must have been
    /// declared with the same value.
    #[must_use]
    pub fn delivery_limit(mut self, count: u32) -> Self {
        self.delivery_limit = count;
        self
    }

    /// Largest message that is offered to the broker, in bytes, properties included; a larger one
    /// is refused alone. A smaller limit of the broker's own is learned from its first refusal.
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// Where the broker is, for logs and telemetry: no user, no password.
    #[must_use]
    pub fn address(&self) -> String {
        let scheme = if self.tls { "amqps" } else { "amqp" };
        let nodes: Vec<String> = self
            .nodes
            .iter()
            .map(|(host, port)| match host.contains(':') {
                true => format!("[{host}]:{port}"),
                false => format!("{host}:{port}"),
            })
            .collect();
        format!(
            "{scheme}://{}/{}",
            nodes.join(","),
            self.vhost.trim_start_matches('/')
        )
    }

    /// The node, if there is one only.
    pub(super) fn only_node(&self) -> Option<(&str, u16)> {
        match self.nodes.as_slice() {
            [(host, port)] => Some((host, *port)),
            _ => None,
        }
    }

    /// All nodes, beginning with a random one.
    pub(super) fn nodes_in_turn(&self) -> impl Iterator<Item = &(String, u16)> {
        let first = rand::random_range(0..self.nodes.len().max(1));
        self.nodes[first..].iter().chain(&self.nodes[..first])
    }

    /// Everything that is wrong with the options, each as one sentence with value, limit and
    /// reason.
    #[must_use]
    pub fn mistakes(&self) -> Vec<String> {
        mistakes::find(self)
    }

    /// Whether the options can be used.
    ///
    /// # Errors
    /// `Configuration`, with all [`Self::mistakes`] as its source.
    pub fn check(&self) -> Result<(), BrokerError> {
        let mistakes = self.mistakes();
        if mistakes.is_empty() {
            return Ok(());
        }
        Err(BrokerError::new(
            "use the options for RabbitMQ",
            BrokerErrorKind::Configuration,
        )
        .with_source(mistakes.join("; ")))
    }
}

impl fmt::Debug for RabbitMqOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqOptions")
            .field("address", &self.address())
            .field("ca_file", &self.ca_file)
            .field("connection_name", &self.connection_name)
            .field("app_id", &self.app_id)
            .field("exchange", &self.exchange)
            .field("provision", &self.provision)
            .field("heartbeat", &self.heartbeat)
            .field("connect_timeout", &self.connect_timeout)
            .field("answer_timeout", &self.answer_timeout)
            .field("publish_timeout", &self.publish_timeout)
            .field("prefetch", &self.prefetch)
            .field("delivery_limit", &self.delivery_limit)
            .field("message_bytes_max", &self.message_bytes_max)
            .field("frame_bytes_max", &self.frame_bytes_max)
            .finish_non_exhaustive()
    }
}
