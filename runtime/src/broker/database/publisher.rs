use futures_util::future::BoxFuture;

use crate::broker::{BrokerError, BrokerErrorKind, PublishOutcome, Publisher};
use crate::store::{Database, OutboxRow, QueueStore, RowId, Session, StoreError};

/// Fills the consumers' queues in the transaction that settles the outbox rows.
pub(super) struct DatabasePublisher<D: Database> {
    store: D::Store,
}

impl<D: Database> DatabasePublisher<D> {
    pub(super) fn new(store: D::Store) -> Self {
        Self { store }
    }
}

impl<D: Database> Publisher<D> for DatabasePublisher<D> {
    fn publish<'a>(
        &'a mut self,
        _wave: &'a [OutboxRow],
    ) -> BoxFuture<'a, Result<Vec<PublishOutcome>, BrokerError>> {
        // Its capabilities say that it publishes within the settling transaction only.
        let error = BrokerError::new(
            "publish to the database broker outside a transaction",
            BrokerErrorKind::Configuration,
        );
        Box::pin(async move { Err(error) })
    }

    fn publish_within<'a>(
        &'a mut self,
        session: &'a mut Session<D>,
        rows: &'a [RowId],
    ) -> BoxFuture<'a, Result<Vec<RowId>, StoreError>> {
        Box::pin(self.store.route(session, rows))
    }
}
