use std::time::Duration;

use futures_util::future::BoxFuture;

use super::unavailable;
use crate::broker::{BrokerError, Delivery, DeliveryTag, PartitionQueue, Subscription};
use crate::store::{Database, QueueRow, QueueStore, Session, Store, StoreError};
use crate::supervision::WakeListener;

/// The pause after the first look that found nothing; it doubles from there.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(20);

/// One partition's rows of a consumer's queue.
pub(super) struct DatabaseSubscription<D: Database> {
    store: D::Store,
    queue: PartitionQueue,
    filled: WakeListener,
    poll_interval_max: Duration,
}

impl<D: Database> DatabaseSubscription<D> {
    pub(super) fn new(
        store: D::Store,
        queue: PartitionQueue,
        filled: WakeListener,
        poll_interval_max: Duration,
    ) -> Self {
        Self {
            store,
            queue,
            filled,
            poll_interval_max,
        }
    }

    async fn look(&self, limit: usize) -> Result<Vec<QueueRow>, StoreError> {
        // Many look, often; if each took SQLite's one lock for it, those who write would wait.
        let mut session = self.store.begin_read().await?;
        let rows = self
            .store
            .queued(
                &mut session,
                &self.queue.consumer,
                self.queue.slots(),
                limit,
            )
            .await?;
        session.commit().await?;
        Ok(rows)
    }

    async fn wait_for_rows(&mut self, limit: usize) -> Result<Vec<Delivery>, BrokerError> {
        let mut pause = POLL_INTERVAL_MIN;
        loop {
            self.filled.hear();
            let rows = self
                .look(limit)
                .await
                .map_err(|error| unavailable("read a queue", error))?;
            if !rows.is_empty() {
                return Ok(rows.into_iter().map(delivery).collect());
            }
            tokio::select! {
                () = self.filled.called() => {}
                () = tokio::time::sleep(pause) => {
                    pause = (pause * 2).min(self.poll_interval_max);
                }
            }
        }
    }
}

fn delivery(row: QueueRow) -> Delivery {
    Delivery {
        tag: DeliveryTag(row.position.unsigned_abs()),
        // The rows of a queue do not say whether somebody has read them before.
        redelivered: false,
        deliveries: 0,
        message: row.message,
    }
}

impl<D: Database> Subscription<D> for DatabaseSubscription<D> {
    fn receive(&mut self, limit: usize) -> BoxFuture<'_, Result<Vec<Delivery>, BrokerError>> {
        Box::pin(self.wait_for_rows(limit))
    }

    fn acknowledge_within<'a>(
        &'a mut self,
        session: &'a mut Session<D>,
        tags: &'a [DeliveryTag],
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move {
            let positions: Vec<i64> = tags.iter().map(|tag| tag.0 as i64).collect();
            self.store.unqueue(session, &positions).await?;
            Ok(())
        })
    }

    fn acknowledge<'a>(
        &'a mut self,
        _tags: &'a [DeliveryTag],
    ) -> BoxFuture<'a, Result<(), BrokerError>> {
        Box::pin(async { Ok(()) })
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async {})
    }
}
