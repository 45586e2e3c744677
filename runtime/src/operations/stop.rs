//! How a runtime ends: by a signal, by a call, or since it failed past every budget.

use std::time::Duration;

use super::signals::Signals;
use super::{Posta, StopError, StopErrorKind};
use crate::lease::leave_all;
use crate::store::Database;
use crate::supervision::{ChildState, Phase};

/// How long aborted children get to be dropped, and leases to be given back.
pub(super) const ABORT_GRACE: Duration = Duration::from_secs(1);

impl<D: Database> Posta<D> {
    /// Waits for SIGTERM or SIGINT, then drains within the configured grace; a second signal aborts
    /// at once. Signals are listened for from the call on. Returns too when the runtime has failed
    /// past every budget and is to exit ([`crate::supervision::PastBudget::Exit`]).
    ///
    /// To systemd this call says that the service is ready: it comes when everything is started.
    ///
    /// # Cancel safety
    /// Only waits, up to the signal; then as [`Posta::stop`].
    ///
    /// # Errors
    /// When the drain did not finish in time, was aborted, or the runtime has failed: returned from
    /// `main`, it makes the process exit with an error.
    ///
    /// # Panics
    /// Outside an actix system.
    pub fn run_until_signal(&self) -> impl Future<Output = Result<(), StopError>> + '_ {
        let mut signals = Signals::listen();
        async move {
            tokio::select! {
                ended = self.ended() => return ended,
                () = signals.next() => {}
            }
            tokio::select! {
                stopped = self.stop() => stopped,
                () = signals.next() => {
                    let error = self.stop_error(StopErrorKind::Aborted);
                    self.abort().await;
                    Err(error)
                }
            }
        }
    }

    /// Waits until the runtime has ended: it was stopped, or it has failed past every budget, is to
    /// exit ([`crate::supervision::PastBudget::Exit`]), and has drained. For services that wait for
    /// something else than signals, beside it.
    ///
    /// To systemd this call says that the service is ready.
    ///
    /// # Cancel safety
    /// Only waits.
    ///
    /// # Errors
    /// The reason why the runtime has failed.
    pub async fn ended(&self) -> Result<(), StopError> {
        self.running.awaited.send_replace(true);
        let mut ending = self.running.tree.ending.clone();
        let mut stopped = self.running.stopped.subscribe();
        tokio::select! {
            // First: it is drained because of that.
            biased;
            Ok(reason) = async { ending.wait_for(Option::is_some).await.map(|it| it.clone()) } => {
                let mut error = self.stop_error(StopErrorKind::Failed);
                error.reason = reason;
                error.unfinished = self.stop().await.err().map(|it| it.unfinished).unwrap_or_default();
                Err(error)
            }
            _ = stopped.wait_for(|stopped| *stopped) => Ok(()),
        }
    }

    /// Drains: takes nothing new, finishes what is in flight, gives the rest and the leases back;
    /// after the configured grace aborts. Calling it again waits for the same drain.
    ///
    /// # Cancel safety
    /// The drain goes on; nobody aborts it then.
    ///
    /// # Errors
    /// When the grace was not enough; what was in flight is undone by the database and delivered
    /// again.
    pub async fn stop(&self) -> Result<(), StopError> {
        let tree = &self.running.tree;
        Phase::Drain.advance(&tree.phase);
        let grace = self.running.settings.grace;
        let in_time = tokio::time::timeout(grace, tree.drained()).await;
        if in_time.is_ok() {
            self.end().await;
            return Ok(());
        }
        let error = self.stop_error(StopErrorKind::Grace);
        self.abort().await;
        Err(error)
    }

    /// Drops what has not finished where it stands. What does not yield cannot be dropped, and is
    /// not waited for.
    async fn abort(&self) {
        let tree = &self.running.tree;
        Phase::Abort.advance(&tree.phase);
        let _ = tokio::time::timeout(ABORT_GRACE, tree.drained()).await;
        self.end().await;
    }

    async fn end(&self) {
        let leave = leave_all(&self.store, &self.running.boards, self.running.member);
        if let Ok(Err(error)) = tokio::time::timeout(ABORT_GRACE, leave).await {
            tracing::info!(
                error = &error as &dyn std::error::Error,
                "leases were not given back; they expire"
            );
        }
        self.running.tree.arbiters.stop();
        self.running.stopped.send_replace(true);
    }

    fn stop_error(&self, kind: StopErrorKind) -> StopError {
        let children = self.running.tree.registry.children().into_iter();
        let unfinished = children
            .filter(|(_, status)| status.state != ChildState::Drained)
            .map(|(name, _)| name)
            .collect();
        StopError {
            kind,
            grace: self.running.settings.grace,
            unfinished,
            reason: None,
        }
    }
}
