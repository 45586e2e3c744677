use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use posta::broker::{
    BrokerDriver, Delivery, DeliveryTag, PartitionQueue, PublishOutcome, Publisher, Subscription,
    Topology,
};
use posta::layout::Generation;
use posta::message::{Envelope, MessageId, MessageType};
use posta::store::{Database, OutboxRow, OutboxStore, RowId, Store};
use posta::{OrderingKey, Slot};

use super::BrokerUnderTest;

/// The longest time that a test waits for something that is to come.
pub(super) const SOON: Duration = Duration::from_secs(30);
/// How many messages are in flight at once, outside the database.
const WAVE: usize = 200;

/// One broker, its publisher, and what has been published.
pub(super) struct Bench<B: BrokerUnderTest> {
    pub(super) broker: B,
    pub(super) driver: Arc<dyn BrokerDriver<B::Database>>,
    publisher: Box<dyn Publisher<B::Database>>,
    published: Vec<RowId>,
}

pub(super) type Subscribed<B> = Box<dyn Subscription<<B as BrokerUnderTest>::Database>>;

impl<B: BrokerUnderTest> Bench<B> {
    pub(super) async fn start() -> Self {
        let broker = B::start().await;
        let driver = broker.driver();
        let publisher = driver.publisher().await.expect("a publisher is to be had");
        Self {
            broker,
            driver,
            publisher,
            published: Vec::new(),
        }
    }

    /// Declares a consumer's queues.
    pub(super) async fn declare(&self, consumer: &str, partitions: u8, types: &[&str]) -> Topology {
        let types = types.iter().map(|name| message_type(name)).collect();
        let topology = Topology {
            consumer: consumer.to_owned(),
            generation: Generation::first(partitions),
            types,
        };
        self.driver
            .declare(&topology)
            .await
            .expect("the topology can be declared");
        topology
    }

    pub(super) async fn subscribe(&self, queue: &PartitionQueue) -> Subscribed<B> {
        self.driver
            .subscribe(queue)
            .await
            .expect("the queue can be subscribed to")
    }

    /// Publishes envelopes as their dispatcher would, in the order given; one outcome per envelope.
    pub(super) async fn publish(&mut self, envelopes: &[Envelope]) -> Vec<PublishOutcome> {
        if self.driver.capabilities().transactional {
            return self.publish_within(envelopes).await;
        }
        let mut outcomes = Vec::with_capacity(envelopes.len());
        for wave in waves(envelopes) {
            let rows: Vec<OutboxRow> = wave.iter().map(row).collect();
            let wave = self
                .publisher
                .publish(&rows)
                .await
                .expect("the wave can be published");
            assert_eq!(wave.len(), rows.len());
            outcomes.extend(wave);
        }
        outcomes
    }

    /// Publishes envelopes that all have a queue.
    pub(super) async fn publish_all(&mut self, envelopes: &[Envelope]) {
        let outcomes = self.publish(envelopes).await;
        let all = outcomes
            .iter()
            .all(|outcome| *outcome == PublishOutcome::Confirmed);
        assert!(all, "all have a queue: {outcomes:?}");
    }

    async fn publish_within(&mut self, envelopes: &[Envelope]) -> Vec<PublishOutcome> {
        let store = self.broker.store().clone();
        let mut session = store.begin().await.expect("a transaction begins");
        B::Database::insert_outbox(&mut session, store.tables(), envelopes)
            .await
            .expect("envelopes can be enqueued");
        session.commit().await.expect("the transaction commits");

        let mut session = store.begin().await.expect("a transaction begins");
        let lanes: Vec<Slot> = Slot::all().collect();
        let rows = store
            .pending(&mut session, &lanes, &self.published, envelopes.len())
            .await
            .expect("the outbox can be read");
        assert_eq!(rows.len(), envelopes.len());
        let ids: Vec<RowId> = rows.iter().map(|row| row.id).collect();
        let routed = self.publisher.publish_within(&mut session, &ids).await;
        let routed: HashSet<RowId> = routed
            .expect("rows can be published within")
            .into_iter()
            .collect();
        session.commit().await.expect("the transaction commits");
        self.published.extend(ids);
        let routed: HashSet<MessageId> = rows
            .iter()
            .filter(|row| routed.contains(&row.id))
            .map(|row| row.message.as_ref().expect("the row is well-formed").id)
            .collect();
        let outcome = |envelope: &Envelope| match routed.contains(&envelope.id) {
            true => PublishOutcome::Confirmed,
            false => PublishOutcome::Returned("no consumer takes it".to_owned()),
        };
        envelopes.iter().map(outcome).collect()
    }

    /// Acknowledges within a transaction and after it, as a partition actor does.
    pub(super) async fn acknowledge(
        &self,
        subscription: &mut Subscribed<B>,
        deliveries: &[Delivery],
    ) {
        let tags: Vec<DeliveryTag> = deliveries.iter().map(|delivery| delivery.tag).collect();
        let mut session = self
            .broker
            .store()
            .begin()
            .await
            .expect("a transaction begins");
        let within = subscription.acknowledge_within(&mut session, &tags).await;
        within.expect("deliveries can be acknowledged within");
        session.commit().await.expect("the transaction commits");
        subscription
            .acknowledge(&tags)
            .await
            .expect("deliveries can be acknowledged");
    }

    /// Receives this many deliveries and acknowledges them as they come.
    pub(super) async fn take(
        &self,
        subscription: &mut Subscribed<B>,
        count: usize,
    ) -> Vec<Delivery> {
        let mut taken = Vec::new();
        while taken.len() < count {
            let deliveries = receive(subscription, count - taken.len()).await;
            self.acknowledge(subscription, &deliveries).await;
            taken.extend(deliveries);
        }
        taken
    }
}

/// Receives at least one delivery, soon.
pub(super) async fn receive<D: Database>(
    subscription: &mut Box<dyn Subscription<D>>,
    limit: usize,
) -> Vec<Delivery> {
    let received = tokio::time::timeout(SOON, subscription.receive(limit)).await;
    let deliveries = received
        .expect("deliveries come soon")
        .expect("the subscription is alive");
    assert!(!deliveries.is_empty() && deliveries.len() <= limit);
    deliveries
}

/// True if nothing comes for a while.
pub(super) async fn is_silent<D: Database>(subscription: &mut Box<dyn Subscription<D>>) -> bool {
    let patience = Duration::from_millis(300);
    tokio::time::timeout(patience, subscription.receive(1))
        .await
        .is_err()
}

pub(super) fn envelopes_of(deliveries: Vec<Delivery>) -> Vec<Envelope> {
    deliveries
        .into_iter()
        .map(|delivery| delivery.message.expect("it is well-formed"))
        .collect()
}

pub(super) fn message_type(name: &str) -> MessageType {
    MessageType::new(name).expect("a valid type")
}

pub(super) fn envelope(name: &str, key: &str, payload: impl Into<Vec<u8>>) -> Envelope {
    Envelope::builder(message_type(name), payload.into())
        .key(Some(OrderingKey::new(key).expect("a valid key")))
        .build()
        .expect("a valid envelope")
}

/// Envelopes of one type, each with a key of its own.
pub(super) fn unlike(name: &str, count: usize) -> Vec<Envelope> {
    (0..count)
        .map(|n| envelope(name, &format!("key-{n}"), format!("payload {n}")))
        .collect()
}

/// Cuts envelopes, in order, into waves in which no key comes twice.
fn waves(envelopes: &[Envelope]) -> Vec<&[Envelope]> {
    let mut waves = Vec::new();
    let (mut start, mut keys) = (0, HashSet::new());
    for (index, envelope) in envelopes.iter().enumerate() {
        let repeated = envelope.key.as_ref().is_some_and(|key| !keys.insert(key));
        if repeated || index - start == WAVE {
            waves.push(&envelopes[start..index]);
            start = index;
            keys.clear();
            keys.extend(envelope.key.as_ref());
        }
    }
    if start < envelopes.len() {
        waves.push(&envelopes[start..]);
    }
    waves
}

/// An outbox row that holds an envelope.
pub(super) fn row(envelope: &Envelope) -> OutboxRow {
    OutboxRow {
        id: RowId {
            slot: envelope.slot(),
            position: 0,
        },
        attempts: 0,
        failed_at: None,
        letter: None,
        message: Ok(envelope.clone()),
    }
}
