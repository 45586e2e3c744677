use std::collections::BTreeSet;

use super::operator::PAGE_MAX;
use super::{Operator, OperatorError};
use crate::operations::ConsumerStatus;
use crate::store::{
    Backlog, Database, DeadLetterStore, InboxStore, LayoutStore, Origin, OutboxStore, RecordStore,
    ReplayRun, ReplayStore, RetryStore, RunState, ScheduleStore,
};

/// What an operator asks first, read from the tables alone.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Overview {
    /// What waits in the outbox.
    pub outbox: Backlog,
    /// Messages that are not due yet.
    pub scheduled: u64,
    /// Dead letters of the way from the outbox to the broker.
    pub dispatch_dead_letters: u64,
    /// The consumers that announced what they handle or that have, or had, dead letters.
    pub consumers: Vec<ConsumerStatus>,
    /// Replay runs that have not ended, the newest first.
    pub runs: Vec<ReplayRun>,
}

impl<D: Database> Operator<D> {
    /// What waits, what is on hold, what is dead, and which replay runs go on.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn overview(&self) -> Result<Overview, OperatorError> {
        let store = &self.store;
        self.read(async |connection| {
            let mut names: BTreeSet<String> = store
                .handled_types(connection)
                .await?
                .into_iter()
                .map(|handled| handled.consumer)
                .collect();
            names.extend(store.dead_consumers(connection).await?);
            let mut consumers = Vec::with_capacity(names.len());
            for name in names {
                let (held, held_keys) = store.held(connection, &name).await?;
                let origin = Origin::Consumer(name.clone());
                consumers.push(ConsumerStatus {
                    handled: store.handled(connection, &name).await?,
                    held,
                    held_keys,
                    dead_letters: store.dead_letters(connection, &origin).await?,
                    layout: store.layout(connection, &name).await?,
                    name,
                });
            }
            let mut runs = store.runs(connection, None, PAGE_MAX).await?;
            runs.retain(|run| {
                matches!(
                    run.state,
                    RunState::Running | RunState::Paused | RunState::Stopped
                )
            });
            Ok(Overview {
                outbox: store.backlog(connection).await?,
                scheduled: store.scheduled(connection).await?,
                dispatch_dead_letters: store.dead_letters(connection, &Origin::Dispatch).await?,
                consumers,
                runs,
            })
        })
        .await
    }
}
