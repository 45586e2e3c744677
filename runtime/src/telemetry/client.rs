use std::sync::Arc;

use super::destination::{Destination, Messages};
use crate::broker::{BrokerDriver, PartitionQueue};
use crate::store::{Database, MemberId};

/// The system of an outbox that the application made itself: which broker its messages will go to
/// is not known there.
const OUTBOX_ALONE: &str = "posta";

/// This process as a client of its broker, in the words of spans: what every span says of the two.
/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Client(Option<Arc<Parts>>);

#[derive(Debug)]
struct Parts {
    system: &'static str,
    exchange: Option<String>,
    server: Option<(String, u16)>,
    id: String,
    settles: bool,
}

impl Client {
    /// The client that a process is to the broker of this driver.
    pub(crate) fn of<D: Database>(driver: &dyn BrokerDriver<D>, member: MemberId) -> Self {
        let server = driver.server().map(|(host, port)| (host.to_owned(), port));
        Self(Some(Arc::new(Parts {
            system: driver.name(),
            exchange: driver.exchange().map(str::to_owned),
            server,
            id: member.as_uuid().to_string(),
            settles: !driver.capabilities().transactional,
        })))
    }

    /// `messaging.system`.
    pub(super) fn system(&self) -> &'static str {
        self.0.as_ref().map_or(OUTBOX_ALONE, |parts| parts.system)
    }

    /// `messaging.client.id`: this run of this process.
    pub(super) fn id(&self) -> Option<&str> {
        self.0.as_ref().map(|parts| parts.id.as_str())
    }

    /// `server.address`, where it is known.
    pub(super) fn server_address(&self) -> Option<&str> {
        let (host, _) = self.0.as_ref()?.server.as_ref()?;
        Some(host)
    }

    /// `server.port`, where it is known.
    pub(super) fn server_port(&self) -> Option<u16> {
        let (_, port) = self.0.as_ref()?.server.as_ref()?;
        Some(*port)
    }

    /// Whether acknowledging is an operation of its own; otherwise it is part of the handling
    /// transaction.
    pub(super) fn settles(&self) -> bool {
        self.0.as_ref().is_some_and(|parts| parts.settles)
    }

    /// Where messages go.
    pub(super) fn to<'a>(&'a self, messages: Messages<'a>) -> Destination<'a> {
        Destination::new(self.exchange(), messages, None)
    }

    /// Where messages come from.
    pub(super) fn from<'a>(
        &'a self,
        messages: Messages<'a>,
        queue: &'a PartitionQueue,
    ) -> Destination<'a> {
        Destination::new(self.exchange(), messages, Some(queue))
    }

    fn exchange(&self) -> Option<&str> {
        self.0.as_ref()?.exchange.as_deref()
    }
}
