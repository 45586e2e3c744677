use std::sync::Arc;

use tokio::sync::Mutex;
use tokio::time::Instant;

use super::RabbitMqOptions;
use super::connection::Connection;
use super::reactor::Reactor;
use crate::broker::{BrokerError, BrokerErrorKind};

/// The place of one connection, publishing's or consuming's: made on demand, and made anew by
/// whoever asks after it was lost.
///
/// Many ask at once after a loss, one for each partition. The first makes the connection while the
/// others wait; if it fails, all who had asked by then share its failure instead of trying one
/// after the other.
pub(super) struct ConnectionSlot {
    use_: &'static str,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    connection: Option<Arc<Connection>>,
    failure: Option<Failure>,
}

struct Failure {
    at: Instant,
    kind: BrokerErrorKind,
    operation: String,
    reason: String,
}

impl ConnectionSlot {
    pub(super) fn new(use_: &'static str) -> Self {
        Self {
            use_,
            state: Mutex::new(State::default()),
        }
    }

    /// The connection, made now if there is none or the last one is lost.
    pub(super) async fn get(
        &self,
        options: &RabbitMqOptions,
        reactor: &Reactor,
    ) -> Result<Arc<Connection>, BrokerError> {
        let asked = Instant::now();
        let mut state = self.state.lock().await;
        if let Some(connection) = state.connection.as_ref().filter(|it| it.is_open()) {
            return Ok(connection.clone());
        }
        if let Some(failure) = state.failure.as_ref().filter(|failure| failure.at >= asked) {
            return Err(failure.error());
        }
        state.connection = None;
        match Connection::open(options, reactor, self.use_).await {
            Ok(connection) => {
                let connection = Arc::new(connection);
                state.connection = Some(connection.clone());
                state.failure = None;
                Ok(connection)
            }
            Err(error) => {
                state.failure = Some(Failure::of(&error, options));
                Err(error)
            }
        }
    }

    /// Closes the connection, whoever uses it; the next one to ask gets a new one. The broker's own
    /// answer is not waited for.
    pub(super) async fn empty(&self) {
        if let Some(connection) = self.state.lock().await.connection.take() {
            connection.close();
        }
    }

    /// The connection if there is an open one.
    pub(super) async fn current(&self) -> Option<Arc<Connection>> {
        self.state
            .lock()
            .await
            .connection
            .clone()
            .filter(|it| it.is_open())
    }
}

impl Failure {
    fn of(error: &BrokerError, options: &RabbitMqOptions) -> Self {
        let reason = std::error::Error::source(error).map(ToString::to_string);
        Self {
            at: Instant::now(),
            kind: error.kind(),
            operation: format!("connect to {}", options.address()),
            reason: reason.unwrap_or_default(),
        }
    }

    fn error(&self) -> BrokerError {
        BrokerError::new(self.operation.as_str(), self.kind).with_source(self.reason.as_str())
    }
}
