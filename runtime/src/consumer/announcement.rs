use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::broker::{BrokerError, BrokerErrorKind};
use crate::layout::{Announced, Layout, LayoutStep, Types};
use crate::message::MessageType;
use crate::store::{Database, LayoutStore, RecordStore, Session, Store, StoreError};

/// Says once per process which message types a consumer handles, before anything is bound for it:
/// for operators (whether a message that is to be replayed has a handler anywhere), and for whoever
/// moves the consumer's bindings to other queues.
pub(crate) struct Announcement<D: Database> {
    store: D::Store,
    consumer: Arc<str>,
    types: Arc<[(MessageType, u32)]>,
    bound: Bound,
    made: Arc<AtomicBool>,
}

/// How messages of a type come to a consumer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// The type alone matters: what other processes announced does not.
    TypeAlone,
    /// Each layout's queues are bound to it, by Posta.
    Layouts,
    /// The same, by an operator.
    Operator,
}

/// How often new types are tried to be put down, while others are at the layout.
const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(25);

/// What became of types that were to be put down.
enum PutDown {
    /// They are, under this layout if they were new to it.
    Done(Option<Layout>),
    /// Somebody is at the layout.
    Occupied,
    /// Queues are being bound: the next step is waited for.
    Later,
}

impl<D: Database> Announcement<D> {
    pub(crate) fn new(
        store: D::Store,
        consumer: &str,
        types: &[(MessageType, u32)],
        bound: Bound,
    ) -> Self {
        Self {
            store,
            consumer: consumer.into(),
            types: types.into(),
            bound,
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

    /// All types that the consumer was ever announced to take, this process's among them unless they
    /// are new and have to wait.
    async fn types(&self) -> Result<Announced, StoreError> {
        let mut layout = None;
        if !self.made.load(Ordering::SeqCst)
            && let PutDown::Done(since) = self.put_down().await?
        {
            self.made.store(true, Ordering::SeqCst);
            layout = since;
        }
        let complete = self.made.load(Ordering::SeqCst);
        let mut types = Vec::new();
        if complete {
            types.extend(self.types.iter().map(|(name, _)| name.clone()));
        }
        if self.bound != Bound::TypeAlone {
            let mut session = self.store.begin_read().await?;
            let announced = self.announced(&mut session).await?;
            session.commit().await?;
            // One that is no type has never been published either.
            types.extend(
                announced
                    .into_iter()
                    .filter_map(|name| MessageType::new(name).ok()),
            );
            types.sort_unstable();
            types.dedup();
        }
        Ok(Announced {
            types,
            complete,
            layout,
        })
    }

    /// The names of all types that the consumer was announced to take.
    async fn announced(&self, session: &mut Session<D>) -> Result<Vec<String>, StoreError> {
        let handled = self.store.handled_types(session).await?;
        let of_it = handled
            .into_iter()
            .filter(|it| *it.consumer == *self.consumer);
        Ok(of_it.map(|it| it.message_type).collect())
    }

    async fn put_down(&self) -> Result<PutDown, StoreError> {
        for _ in 0..LOCK_TRIES {
            match self.try_put_down().await? {
                PutDown::Occupied => tokio::time::sleep(LOCK_PAUSE).await,
                end => return Ok(end),
            }
        }
        Ok(PutDown::Occupied)
    }

    /// Types that are new begin an epoch at rest, so that every process binds them to the queues in
    /// use before a change can begin; while one has begun, and those are bound still, they wait.
    async fn try_put_down(&self) -> Result<PutDown, StoreError> {
        let mut session = self.store.begin().await?;
        let mut layout = None;
        if self.bound == Bound::Layouts && self.has_new(&mut session).await? {
            let locked = self.store.lock_layout(&mut session, &self.consumer).await?;
            match locked.map(|layout| (layout.step, layout)) {
                Some((LayoutStep::Rest, mut locked)) => {
                    let (generation, step) = (locked.generation, locked.step);
                    locked.epoch = self
                        .store
                        .set_layout(&mut session, &self.consumer, generation, step)
                        .await?;
                    layout = Some(locked);
                }
                Some((LayoutStep::Binding { .. }, _)) => {
                    session.rollback().await;
                    return Ok(PutDown::Later);
                }
                Some(_) => {}
                None => {
                    session.rollback().await;
                    return Ok(PutDown::Occupied);
                }
            }
        }
        self.store
            .announce(&mut session, &self.consumer, &self.types)
            .await?;
        session.commit().await?;
        Ok(PutDown::Done(layout))
    }

    async fn has_new(&self, session: &mut Session<D>) -> Result<bool, StoreError> {
        let announced = self.announced(session).await?;
        let is_new = |name: &MessageType| announced.iter().all(|it| it != name.as_str());
        Ok(self.types.iter().any(|(name, _)| is_new(name)))
    }
}

impl<D: Database> Clone for Announcement<D> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            consumer: self.consumer.clone(),
            types: self.types.clone(),
            bound: self.bound,
            made: self.made.clone(),
        }
    }
}
