use std::collections::BTreeSet;
use std::time::Duration;

use crate::Secrets;

/// Largest body that is taken, in bytes: Posta's default limit of a payload. GitHub itself caps at
/// 25 MB, which next to nothing reaches.
pub const BODY_BYTES_MAX: usize = 1024 * 1024;

/// How the service runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens, such as `127.0.0.1:8080`; port 0 takes a free one.
    pub listen: String,
    /// `sqlite://FILE` or `postgres://…`.
    pub database: String,
    /// `database`, `amqp://…` or `amqps://…`.
    pub broker: String,
    /// What GitHub signs with.
    pub secrets: Secrets,
    /// Events that the statistics leave out.
    pub ignored: BTreeSet<String>,
    /// How long the work of a killed process rests before another one, or the next start, takes it
    /// over.
    pub lease: Duration,
}

impl Options {
    /// Options with the defaults of a local start: SQLite in `webhooks.db`, messages by the
    /// database itself, loopback only.
    #[must_use]
    pub fn new(secrets: Secrets) -> Self {
        Self {
            listen: "127.0.0.1:8080".to_owned(),
            database: "sqlite://webhooks.db".to_owned(),
            broker: "database".to_owned(),
            secrets,
            ignored: BTreeSet::new(),
            lease: Duration::from_secs(15),
        }
    }
}
