use posta::{Broker, Posta};
use tokio::sync::oneshot;

use super::super::Db;
use super::{LEASE_TTL, lines};
use crate::crew::{Order, Role};
use crate::error::JobError;

/// Runs a worker until `end` comes, then lets it drain.
pub(crate) async fn work(order: Order, end: oneshot::Receiver<()>) -> Result<(), JobError> {
    let mut builder = Posta::<Db>::builder(&order.database, Broker::from_url(&order.broker)?)
        .lease_ttl(LEASE_TTL);
    if order.role == Role::Consumers {
        for consumer in lines::consumers() {
            builder = builder.consumer(consumer);
        }
    }
    let posta = builder.start().await?;
    // An error means that the sender is gone, which is the end as well.
    let _ = end.await;
    if let Err(error) = posta.stop().await {
        tracing::warn!("{error}");
    }
    Ok(())
}
