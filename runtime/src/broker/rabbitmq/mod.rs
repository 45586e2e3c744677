//! RabbitMQ as a broker.

use super::BrokerError;

/// How RabbitMQ is reached and used.
#[derive(Clone)]
pub struct RabbitMqOptions {}

impl RabbitMqOptions {
    /// Options of a URL.
    pub fn from_url(_url: &str) -> Result<Self, BrokerError> {
        Ok(Self {})
    }
}

impl std::fmt::Debug for RabbitMqOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("amqp")
    }
}
