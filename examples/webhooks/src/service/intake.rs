use diesel::ExpressionMethods;
use diesel_async::RunQueryDsl;
use posta::operations::TransactionError;
use posta::outbox::EnqueueError;
use posta::{Envelope, Posta};

use super::Db;
use super::tables::deliveries;

/// What became of a delivery that was taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Taken {
    /// Stored and enqueued, both or neither.
    Now,
    /// It was here before: nothing was changed.
    Before,
}

/// Why a delivery was not taken in.
#[derive(Debug, thiserror::Error)]
pub(super) enum IntakeError {
    /// The message breaks a limit: the same again fails again.
    #[error(transparent)]
    Refused(#[from] EnqueueError),
    /// The database did not do it: the same again may succeed.
    #[error(transparent)]
    Statement(#[from] diesel::result::Error),
    /// The transaction did not come to its end. If it failed in its commit, it may have happened
    /// all the same; then the repetition finds it done.
    #[error(transparent)]
    Transaction(#[from] TransactionError),
}

/// Stores a delivery and enqueues its message in one transaction, unless it is here already.
///
/// The insert decides, not a look before it: of two copies at the same moment one waits for the
/// other's row to be committed (PostgreSQL) or for its whole transaction (SQLite), then conflicts.
/// ON CONFLICT DO NOTHING makes of that an answer; as an error it would leave a transaction on
/// PostgreSQL in which nothing more can be done.
pub(super) async fn take(
    posta: &Posta<Db>,
    envelope: Envelope,
    event: &str,
) -> Result<Taken, IntakeError> {
    posta
        .transaction(async |tx| {
            let inserted = diesel::insert_into(deliveries::table)
                .values((
                    deliveries::delivery.eq(envelope.id.to_string()),
                    deliveries::event.eq(event),
                    deliveries::repository.eq(envelope.key.as_ref().map(|key| key.as_str())),
                ))
                .on_conflict_do_nothing()
                .execute(tx)
                .await?;
            if inserted == 0 {
                return Ok(Taken::Before);
            }
            tx.enqueue_envelope(envelope)?;
            Ok(Taken::Now)
        })
        .await
}
