use std::sync::Arc;

use tokio::sync::Mutex;

use super::wakes::Wakes;
use crate::broker::database::DatabaseBroker;
use crate::broker::{Broker, BrokerDriver, BrokerKind};
use crate::lease::MemberId;
use crate::operations::liveness::Subjects;
use crate::operations::{Counters, Settings};
use crate::outbox::Outbox;
use crate::store::{Database, Store};
use crate::telemetry::Client;

/// What the concerns of one runtime have in common.
pub(super) struct Shared<D: Database> {
    pub(super) store: D::Store,
    pub(super) driver: Arc<dyn BrokerDriver<D>>,
    pub(super) outbox: Outbox<D>,
    pub(super) wakes: Wakes,
    pub(super) counters: Arc<Counters>,
    pub(super) client: Client,
    pub(super) member: MemberId,
    /// The turn to run a message of which processes may have died.
    pub(super) alone: Arc<Mutex<()>>,
    /// Who is looked at.
    pub(super) subjects: Subjects,
    pub(super) settings: Settings,
}

impl<D: Database> Shared<D> {
    pub(super) fn new(store: D::Store, broker: &Broker, settings: Settings) -> Self {
        let member = MemberId::random();
        let wakes = Wakes::new();
        let driver = drive::<D>(broker, &store, &settings, &wakes);
        let client = Client::of(&*driver, member);
        let outbox = Outbox::<D>::new(store.tables().clone())
            .payload_bytes_max(settings.payload_bytes_max)
            .client(client.clone());
        Self {
            store,
            driver,
            outbox,
            wakes,
            counters: Arc::default(),
            client,
            member,
            alone: Arc::default(),
            subjects: Subjects::default(),
            settings,
        }
    }
}

fn drive<D: Database>(
    broker: &Broker,
    store: &D::Store,
    settings: &Settings,
    wakes: &Wakes,
) -> Arc<dyn BrokerDriver<D>> {
    match &broker.kind {
        BrokerKind::Database => Arc::new(
            DatabaseBroker::<D>::new(store.clone(), settings.poll_interval_max)
                .with_wake(wakes.filled.clone()),
        ),
        #[cfg(feature = "rabbitmq")]
        BrokerKind::RabbitMq(options) => {
            Arc::new(crate::broker::rabbitmq::RabbitMq::new((**options).clone()))
        }
    }
}
