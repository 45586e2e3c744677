use std::time::Duration;

use super::{Stepped, step};
use crate::store::Store;
use crate::supervision::{ChildError, Life, Wake};

/// The pause between two looks for a run, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Carries out replay runs: the body of the replayer actor, one per process.
#[derive(Clone)]
pub(crate) struct Replayer<S> {
    pub(crate) store: S,
    /// Called when a run begins or goes on in this process.
    pub(crate) begun: Wake,
    /// Called when letters went on their way.
    pub(crate) enqueued: Wake,
}

impl<S: Store> Replayer<S> {
    /// Takes steps until the runtime drains. A step that the drain finds under way is dropped,
    /// which rolls it back.
    pub(crate) async fn run(self, life: Life) -> Result<(), ChildError> {
        tokio::select! {
            () = self.replay(&life) => {}
            () = life.draining() => {}
        }
        Ok(())
    }

    async fn replay(&self, life: &Life) {
        let mut begun = self.begun.listen();
        let mut failures = 0;
        let mut pause = PAUSE_MIN;
        let mut patience = PAUSE_MIN;
        loop {
            begun.hear();
            let wait = match step(&self.store, patience).await {
                Ok(stepped) => {
                    if failures > 0 {
                        failures = 0;
                        life.recovered();
                    }
                    match stepped {
                        Stepped::Moved(moved) => {
                            if moved > 0 {
                                self.enqueued.call();
                            }
                            (pause, patience) = (PAUSE_MIN, PAUSE_MIN);
                            continue;
                        }
                        Stepped::Waited => {
                            pause = PAUSE_MIN;
                            patience = (patience * 2).min(PAUSE_MAX);
                            continue;
                        }
                        Stepped::Due(due) => due.clamp(PAUSE_MIN, PAUSE_MAX),
                        Stepped::Idle => {
                            let idle = pause;
                            pause = (pause * 2).min(PAUSE_MAX);
                            idle
                        }
                    }
                }
                Err(error) => {
                    failures += 1;
                    life.sit_out(failures, &error).await;
                    continue;
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = begun.called() => {}
            }
        }
    }
}
