use std::sync::Arc;

use tokio::sync::OnceCell;

use super::handlers::Handlers;
use crate::store::{Database, RecordStore, Store, StoreError};

/// Says once per process which message types a consumer handles, for operators: whether a message
/// that is to be replayed has a handler anywhere.
pub(crate) struct Announcement<D: Database> {
    store: D::Store,
    consumer: Arc<str>,
    handlers: Arc<Handlers<D>>,
    made: Arc<OnceCell<()>>,
}

impl<D: Database> Announcement<D> {
    pub(crate) fn new(store: D::Store, consumer: &str, handlers: Arc<Handlers<D>>) -> Self {
        Self {
            store,
            consumer: consumer.into(),
            handlers,
            made: Arc::default(),
        }
    }

    /// Makes it, unless another partition's actor has. Nothing depends on it: if the database does
    /// not take it, the next subscription's actor tries again.
    pub(super) async fn make(&self) {
        let made = self.made.get_or_try_init(|| self.write()).await;
        if let Err(error) = made {
            tracing::info!(
                consumer = %self.consumer,
                error = &error as &dyn std::error::Error,
                "the handled message types were not announced"
            );
        }
    }

    async fn write(&self) -> Result<(), StoreError> {
        let mut session = self.store.begin().await?;
        self.store
            .announce(&mut session, &self.consumer, self.handlers.types())
            .await?;
        session.commit().await
    }
}

impl<D: Database> Clone for Announcement<D> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            consumer: self.consumer.clone(),
            handlers: self.handlers.clone(),
            made: self.made.clone(),
        }
    }
}
