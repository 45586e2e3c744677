use std::error::Error;
use std::fmt;

/// Why the broker did not do what it was asked. Never the fault of one message.
#[derive(Debug)]
pub struct BrokerError {
    operation: String,
    kind: BrokerErrorKind,
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The nature of a broker failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokerErrorKind {
    /// It cannot be reached, or the connection was lost.
    Unavailable,
    /// It has blocked publishing (a memory or disk alarm).
    Blocked,
    /// It did not answer in time.
    Timeout,
    /// The channel or consumer was closed by the broker; the text says why.
    Closed,
    /// A queue or exchange is missing or has other arguments than configured.
    Topology,
    /// The configuration is not usable: the URL, a right, a credential.
    Configuration,
}

impl BrokerErrorKind {
    /// Whether it is nobody's doing, and can be over at the next try.
    pub(crate) fn is_outage(self) -> bool {
        matches!(self, Self::Unavailable | Self::Blocked | Self::Timeout)
    }
}

impl BrokerError {
    /// A failure of an operation, named in the infinitive (`declare the queue "notifications.0"`).
    pub fn new(operation: impl Into<String>, kind: BrokerErrorKind) -> Self {
        Self {
            operation: operation.into(),
            kind,
            source: None,
        }
    }

    /// The same with the error behind it.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same failure for somebody else who shares it, with the text of what is behind it.
    pub(crate) fn shared(&self) -> Self {
        Self {
            operation: self.operation.clone(),
            kind: self.kind,
            source: self.source.as_ref().map(|source| source.to_string().into()),
        }
    }

    /// The failure's nature.
    #[must_use]
    pub fn kind(&self) -> BrokerErrorKind {
        self.kind
    }

    /// Whether the same again can succeed without anybody changing the configuration.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        !matches!(
            self.kind,
            BrokerErrorKind::Configuration | BrokerErrorKind::Topology
        )
    }
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.kind {
            BrokerErrorKind::Unavailable => "the broker is unavailable",
            BrokerErrorKind::Blocked => "the broker has blocked publishing",
            BrokerErrorKind::Timeout => "the broker did not answer in time",
            BrokerErrorKind::Closed => "the broker closed the channel",
            BrokerErrorKind::Topology => "what the broker has differs from the configuration",
            BrokerErrorKind::Configuration => "the configuration is not usable",
        };
        write!(f, "could not {}: {why}", self.operation)
    }
}

impl Error for BrokerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source
            .as_deref()
            .map(|source| source as &(dyn Error + 'static))
    }
}
