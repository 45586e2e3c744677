use super::partition::Partition;
use super::{Failure, HandleError, Handler};
use crate::message::Envelope;
use crate::outbox::Context;
use crate::retry::RetryPolicy;
use crate::store::{Database, Session, Tx};
use crate::supervision::{Caught, chain};
use crate::telemetry::Process;

impl<D: Database> Partition<D> {
    /// Runs a handler in the transaction, at most until its deadline. Whether what it did lasts,
    /// the transaction's end says; after an error it ends with [`undo`].
    pub(super) async fn call(
        &self,
        tx: &mut Tx<'_, D>,
        (handler, policy): (&Handler<D>, &RetryPolicy),
        envelope: &Envelope,
        attempt: u32,
    ) -> Result<Process, HandleError> {
        tx.set_context(Context::handling(envelope));
        let process = Process::new(&self.client, &self.queue, envelope, attempt);
        let call = handler.handle(envelope, attempt, &self.state, tx);
        let in_time = async {
            match tokio::time::timeout(policy.deadline, call).await {
                Ok(outcome) => outcome,
                Err(_) => Err(HandleError::Deadline(policy.deadline)),
            }
        };
        let outcome = process.run(in_time).await;
        self.progress.step();
        if let Err(HandleError::Panicked(panic)) = &outcome {
            self.count_panic(envelope, panic);
        }
        outcome.map(|()| process)
    }

    /// Says where a handler panicked, to whoever watches this partition's actor.
    fn count_panic(&self, envelope: &Envelope, panic: &Caught) {
        tracing::error!(
            consumer = %self.queue.consumer,
            message_id = %envelope.id,
            message_type = %envelope.message_type,
            %panic,
            backtrace = panic.backtrace,
            "a handler panicked"
        );
        self.counters.add_panic();
        self.registry.panicked(&self.child, panic.clone());
    }
}

/// Undoes a transaction in which a handler failed. One whose handler was left in the middle of
/// something loses its connection: nobody knows what is still under way on it. So does one whose
/// error says that the same would fail again on it.
pub(super) async fn undo<D: Database>(session: Session<D>, error: &HandleError) {
    match error {
        HandleError::Deadline(_) | HandleError::Panicked(_) => drop(session),
        HandleError::Failed(failure) if is_spoiling::<D>(failure) => drop(session),
        _ => session.rollback().await,
    }
}

fn is_spoiling<D: Database>(failure: &Failure) -> bool {
    chain(failure.source()).any(|error| {
        let error = error.downcast_ref::<diesel::result::Error>();
        error.is_some_and(D::spoils_connection)
    })
}
