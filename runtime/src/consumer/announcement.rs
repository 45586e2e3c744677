use std::sync::Arc;

use tokio::sync::OnceCell;

use crate::broker::{BrokerError, BrokerErrorKind};
use crate::layout::Types;
use crate::message::MessageType;
use crate::store::{Database, RecordStore, Store, StoreError};

/// Says once per process which message types a consumer handles, before anything is bound for it:
/// for operators (whether a message that is to be replayed has a handler anywhere), and for whoever
/// moves the consumer's bindings to other queues.
pub(crate) struct Announcement<D: Database> {
    store: D::Store,
    consumer: Arc<str>,
    types: Arc<[(MessageType, u32)]>,
    /// Whether what other processes announced matters: not where bindings are by type alone.
    all: bool,
    made: Arc<OnceCell<()>>,
}

impl<D: Database> Announcement<D> {
    pub(crate) fn new(
        store: D::Store,
        consumer: &str,
        types: &[(MessageType, u32)],
        all: bool,
    ) -> Self {
        Self {
            store,
            consumer: consumer.into(),
            types: types.into(),
            all,
            made: Arc::default(),
        }
    }

    /// What [`crate::layout::Declaration`] asks for.
    pub(crate) fn into_types(self) -> Types {
        Arc::new(move || {
            let announcement = self.clone();
            Box::pin(async move {
                let types = announcement.types().await;
                types.map_err(|error| {
                    let operation = "say which message types are handled";
                    BrokerError::new(operation, BrokerErrorKind::Unavailable).with_source(error)
                })
            })
        })
    }

    /// All types that the consumer was ever announced to take, this process's among them.
    async fn types(&self) -> Result<Vec<MessageType>, StoreError> {
        self.made.get_or_try_init(|| self.make()).await?;
        let own = self.types.iter().map(|(name, _)| name.clone());
        let mut types: Vec<MessageType> = own.collect();
        if self.all {
            let mut session = self.store.begin_read().await?;
            let announced = self.store.handled_types(&mut session).await?;
            session.commit().await?;
            let of_it = announced
                .into_iter()
                .filter(|handled| *handled.consumer == *self.consumer);
            // One that is no type has never been published either.
            types.extend(of_it.filter_map(|handled| MessageType::new(handled.message_type).ok()));
            types.sort_unstable();
            types.dedup();
        }
        Ok(types)
    }

    async fn make(&self) -> Result<(), StoreError> {
        let mut session = self.store.begin().await?;
        self.store
            .announce(&mut session, &self.consumer, &self.types)
            .await?;
        session.commit().await
    }
}

impl<D: Database> Clone for Announcement<D> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            consumer: self.consumer.clone(),
            types: self.types.clone(),
            all: self.all,
            made: self.made.clone(),
        }
    }
}
