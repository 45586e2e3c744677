use std::fmt;

use super::{BrokerError, BrokerErrorKind};

/// Which broker carries the messages: the second of the two things that a service names.
#[derive(Clone)]
pub struct Broker {
    pub(crate) kind: BrokerKind,
}

#[derive(Clone)]
pub(crate) enum BrokerKind {
    Database,
    #[cfg(feature = "rabbitmq")]
    RabbitMq(Box<super::rabbitmq::RabbitMqOptions>),
}

impl Broker {
    /// The application's database itself: queue tables, no server.
    #[must_use]
    pub fn database() -> Self {
        Self {
            kind: BrokerKind::Database,
        }
    }

    /// RabbitMQ with options beyond its URL.
    #[cfg(feature = "rabbitmq")]
    #[must_use]
    pub fn rabbitmq(options: super::rabbitmq::RabbitMqOptions) -> Self {
        Self {
            kind: BrokerKind::RabbitMq(Box::new(options)),
        }
    }

    /// Everything that is wrong with its options, each as one sentence with value, limit and
    /// reason.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        match &self.kind {
            BrokerKind::Database => Vec::new(),
            #[cfg(feature = "rabbitmq")]
            BrokerKind::RabbitMq(options) => options.mistakes(),
        }
    }

    /// The broker of a URL: `database`, or `amqp://…` and `amqps://…` for RabbitMQ.
    ///
    /// # Errors
    /// When the URL has another scheme or is no URL; the error never holds a password.
    pub fn from_url(url: &str) -> Result<Self, BrokerError> {
        if url == "database" {
            return Ok(Self::database());
        }
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        match scheme {
            #[cfg(feature = "rabbitmq")]
            "amqp" | "amqps" => {
                Ok(Self::rabbitmq(super::rabbitmq::RabbitMqOptions::from_url(url)?))
            }
            _ => Err(BrokerError::new(
                format!("use the broker URL with the scheme {scheme:?}"),
                BrokerErrorKind::Configuration,
            )
            .with_source(
                "a broker is \"database\", \"amqp://…\" or \"amqps://…\" (the last two with the feature `rabbitmq`)",
            )),
        }
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            BrokerKind::Database => f.write_str("Broker(database)"),
            #[cfg(feature = "rabbitmq")]
            BrokerKind::RabbitMq(options) => write!(f, "Broker({options:?})"),
        }
    }
}
