use std::time::Duration;

use super::{Failure, HandleError, Nature};
use crate::broker::BrokerError;
use crate::outbox::EnqueueError;
use crate::retry::Backoff;
use crate::store::{Database, StoreError, StoreErrorKind};
use crate::supervision::chain;

/// How often a handler is called again that the database disturbed, before that counts as its
/// failure: the database that it complains of may be another than ours, or the deadlock its own.
const DISTURBANCES_MAX: u32 = 10;

/// Between calls of a handler that the database disturbed.
const CONTENTION_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(5), Duration::from_millis(500));

/// Why messages could not be handled: nobody's attempt.
pub(super) enum Interruption {
    /// The database is not there, or not as it should be: wait, then the same again.
    Database(StoreError),
    /// The channel is gone: what was not acknowledged is delivered again.
    Broker(BrokerError),
}

impl From<StoreError> for Interruption {
    fn from(error: StoreError) -> Self {
        Self::Database(error)
    }
}

impl From<BrokerError> for Interruption {
    fn from(error: BrokerError) -> Self {
        Self::Broker(error)
    }
}

/// Why a transaction of handlers did not come to its end; it is rolled back.
pub(super) enum Trouble {
    Store(StoreError),
    Broker(BrokerError),
    Handler(HandleError),
}

impl From<StoreError> for Trouble {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<BrokerError> for Trouble {
    fn from(error: BrokerError) -> Self {
        Self::Broker(error)
    }
}

/// Runs a transaction of handlers; again, a bounded number of times, while the database gets in the
/// way: that is nobody's attempt. The inner error is a handler's failure.
pub(super) async fn patiently<D: Database, T>(
    mut transaction: impl AsyncFnMut() -> Result<T, Trouble>,
) -> Result<Result<T, HandleError>, Interruption> {
    let mut tries = 0;
    loop {
        let trouble = match transaction().await {
            Ok(done) => return Ok(Ok(done)),
            Err(trouble) => trouble,
        };
        let disturbed = match &trouble {
            Trouble::Handler(error) => is_disturbance::<D>(error),
            Trouble::Store(error) => error.kind() == StoreErrorKind::Contention,
            Trouble::Broker(_) => false,
        };
        if disturbed && tries < DISTURBANCES_MAX {
            tries += 1;
            tokio::time::sleep(CONTENTION_BACKOFF.delay(tries)).await;
            continue;
        }
        return match trouble {
            Trouble::Broker(error) => Err(Interruption::Broker(error)),
            Trouble::Store(error) if is_outage(error.kind()) => Err(Interruption::Database(error)),
            // What the handlers wrote was refused at the end, by a deferred constraint for example:
            // that is theirs.
            Trouble::Store(error) => Ok(Err(HandleError::Failed(Failure::new(error)))),
            Trouble::Handler(error) => Ok(Err(error)),
        };
    }
}

/// Whether the database is the problem, not what it was asked: wait for it.
pub(super) fn is_outage(kind: StoreErrorKind) -> bool {
    matches!(
        kind,
        StoreErrorKind::Unavailable | StoreErrorKind::Contention | StoreErrorKind::Schema
    )
}

/// Whether a handler's failure is in truth the database's, which may go away by itself: found
/// anywhere in the chain of errors. A handler that says more of its failure than that is believed.
fn is_disturbance<D: Database>(error: &HandleError) -> bool {
    let HandleError::Failed(failure) = error else {
        return false;
    };
    if failure.nature() != Nature::Transient {
        return false;
    }
    chain(failure.source()).any(|error| {
        let kind = if let Some(error) = error.downcast_ref::<diesel::result::Error>() {
            Some(D::classify(error))
        } else if let Some(EnqueueError::Store(error)) = error.downcast_ref::<EnqueueError>() {
            Some(error.kind())
        } else {
            error.downcast_ref::<StoreError>().map(StoreError::kind)
        };
        matches!(
            kind,
            Some(StoreErrorKind::Unavailable | StoreErrorKind::Contention)
        )
    })
}
