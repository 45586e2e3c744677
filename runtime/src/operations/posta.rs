use std::fmt;
use std::sync::Arc;

use tokio::sync::watch;

use super::operator::{Operator, OperatorError, Wiring};
use super::{Builder, ConsumerStatus, Counters, Health, Settings, Status, TransactionError};
use crate::broker::Broker;
use crate::dead_letter::Origin;
use crate::lease::{Board, MemberId};
use crate::outbox::{Context, Outbox};
use crate::store::{
    Database, DeadLetterStore, InboxStore, LayoutStore, OutboxStore, RetryStore, ScheduleStore,
    Store, StoreError, Tx,
};
use crate::supervision::{Registry, Tree, Wake, crash_point};

/// A running actor system: transactions that enqueue, and the life of the whole. Cheap to clone.
pub struct Posta<D: Database> {
    pub(super) store: D::Store,
    outbox: Outbox<D>,
    enqueued: Wake,
    counters: Arc<Counters>,
    consumers: Arc<Vec<String>>,
    wiring: Wiring<D>,
    pub(super) running: Arc<Running>,
}

/// What is needed to watch and to stop the actors.
pub(super) struct Running {
    pub(super) member: MemberId,
    pub(super) boards: Vec<Board>,
    pub(super) declared: Vec<watch::Receiver<bool>>,
    pub(super) settings: Settings,
    pub(super) tree: Tree,
    /// Turns true when somebody waits for the end.
    pub(super) awaited: watch::Sender<bool>,
    /// Turns true when everything has ended.
    pub(super) stopped: watch::Sender<bool>,
}

impl<D: Database> Posta<D> {
    /// Begins a runtime on a database and a broker.
    #[must_use]
    pub fn builder(database_url: &str, broker: Broker) -> Builder<D> {
        Builder::new(database_url, broker)
    }

    pub(super) fn new(
        store: D::Store,
        outbox: Outbox<D>,
        enqueued: Wake,
        counters: Arc<Counters>,
        consumers: Vec<String>,
        wiring: Wiring<D>,
        running: Running,
    ) -> Self {
        let (consumers, running) = (Arc::new(consumers), Arc::new(running));
        Self {
            store,
            outbox,
            enqueued,
            counters,
            consumers,
            wiring,
            running,
        }
    }

    /// Runs a transaction: state and messages commit together or not at all (G1).
    ///
    /// Messages that `work` enqueues are written in one insert after its last statement; then it is
    /// committed, and the dispatcher is nudged. An error of `work` rolls back.
    ///
    /// # Cancel safety
    /// Dropped before the commit was sent it rolls back; dropped while the commit is under way its
    /// outcome is unknown. The connection is discarded in both cases.
    ///
    /// # Errors
    /// The error of `work`, or a [`TransactionError`] turned into it.
    pub async fn transaction<T, E, F>(&self, work: F) -> Result<T, E>
    where
        F: AsyncFnOnce(&mut Tx<'_, D>) -> Result<T, E>,
        E: From<TransactionError>,
    {
        let mut session = self.store.begin().await.map_err(TransactionError::Store)?;
        let mut tx = Tx::new(&mut *session, &self.outbox, Context::default());
        let value = match work(&mut tx).await {
            Ok(value) => value,
            Err(error) => {
                self.store.undo(session).await;
                return Err(error);
            }
        };
        let enqueued = match tx.flush().await {
            Ok(enqueued) => enqueued,
            Err(error) => {
                session.rollback().await;
                return Err(TransactionError::Store(error).into());
            }
        };
        crash_point!("enqueue.inserted");
        session.commit().await.map_err(TransactionError::Commit)?;
        crash_point!("enqueue.committed");
        if enqueued > 0 {
            self.nudge();
        }
        Ok(value)
    }

    /// Makes the dispatcher look into the outbox at once; sensible after a commit of the
    /// application's own that enqueued. Coalesces, never blocks.
    pub fn nudge(&self) {
        self.enqueued.call();
    }

    /// Waits until the broker has the queues and bindings of every consumer of this process (or the
    /// queues were verified or left alone, as configured): from then on no message of their types
    /// is unroutable. Starting does not wait for it, since a service shall come up while its broker
    /// is away. Returns too when the runtime is stopped meanwhile.
    ///
    /// # Cancel safety
    /// Only waits.
    pub async fn declared(&self) {
        for declared in &self.running.declared {
            // An error: the actors have stopped; nothing is declared any more.
            let _ = declared.clone().wait_for(|declared| *declared).await;
        }
    }

    /// The enqueueing side for transactions that the application begins itself.
    #[must_use]
    pub fn outbox(&self) -> &Outbox<D> {
        &self.outbox
    }

    /// The store: connections, tables and statements.
    #[must_use]
    pub fn store(&self) -> &D::Store {
        &self.store
    }

    /// An operator in this process: one that also knows its handlers, so that a dry run can tell
    /// what decodes.
    ///
    /// # Errors
    /// As [`Operator::new`].
    pub fn operator(&self, who: impl Into<String>) -> Result<Operator<D>, OperatorError> {
        Ok(Operator::new(self.store.clone(), who)?.wired(self.wiring.clone()))
    }

    /// The state of every actor.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.running.tree.registry
    }

    /// What the actors go by.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.running.settings
    }

    /// What an operator asks first, read from the tables.
    ///
    /// # Errors
    /// When the database does not answer; the registry does all the same.
    pub async fn status(&self) -> Result<Status, StoreError> {
        let mut session = self.store.begin().await?;
        let outbox = self.store.backlog(&mut session).await?;
        let scheduled = self.store.scheduled(&mut session).await?;
        let dispatch_dead_letters = self
            .store
            .dead_letters(&mut session, &Origin::Dispatch)
            .await?;
        let mut consumers = Vec::with_capacity(self.consumers.len());
        for name in self.consumers.iter() {
            let (held, held_keys) = self.store.held(&mut session, name).await?;
            let origin = Origin::Consumer(name.clone());
            consumers.push(ConsumerStatus {
                name: name.clone(),
                handled: self.store.handled(&mut session, name).await?,
                held,
                held_keys,
                dead_letters: self.store.dead_letters(&mut session, &origin).await?,
                layout: self.store.layout(&mut session, name).await?,
            });
        }
        session.commit().await?;
        Ok(Status {
            outbox,
            scheduled,
            dispatch_dead_letters,
            consumers,
            counts: self.counters.counts(),
            children: self.running.tree.registry.children(),
            healthy: self.running.tree.registry.is_healthy(),
        })
    }

    /// How the runtime is, for probes: at once, whatever hangs.
    #[must_use]
    pub fn health(&self) -> Health {
        Health::of(&self.running.tree, &self.running.boards)
    }
}

impl<D: Database> Clone for Posta<D> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            outbox: self.outbox.clone(),
            enqueued: self.enqueued.clone(),
            counters: self.counters.clone(),
            consumers: self.consumers.clone(),
            wiring: self.wiring.clone(),
            running: self.running.clone(),
        }
    }
}

impl<D: Database> fmt::Debug for Posta<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Posta")
            .field("database", &D::NAME)
            .field("consumers", &self.consumers)
            .finish_non_exhaustive()
    }
}
