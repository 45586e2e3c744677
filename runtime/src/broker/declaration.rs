use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::{BrokerDriver, BrokerError, BrokerErrorKind, Topology};
use crate::store::Database;

/// After the broker has refused a topology, since what it has differs, it is not asked again for so
/// long: only an operator can change that.
const REFUSAL_PAUSE: Duration = Duration::from_secs(15);

/// One consumer's topology, declared once by whichever actor comes first, and again after a
/// subscription failed: the queue may be gone.
///
/// All actors share a refusal, too: however many partitions there are, the broker is asked four
/// times a minute.
pub(crate) struct Declaration<D: Database> {
    driver: Arc<dyn BrokerDriver<D>>,
    topology: Arc<Topology>,
    state: Arc<Mutex<State>>,
    done: watch::Sender<bool>,
}

#[derive(Default)]
enum State {
    #[default]
    Undeclared,
    Declared,
    Refused(BrokerError, Instant),
}

impl<D: Database> Declaration<D> {
    pub(crate) fn new(driver: Arc<dyn BrokerDriver<D>>, topology: Topology) -> Self {
        Self {
            driver,
            topology: Arc::new(topology),
            state: Arc::default(),
            done: watch::Sender::new(false),
        }
    }

    /// Declares if nobody has; others wait meanwhile.
    pub(crate) async fn ensure(&self) -> Result<(), BrokerError> {
        let mut state = self.state.lock().await;
        match &*state {
            State::Declared => return Ok(()),
            State::Refused(error, at) if at.elapsed() < REFUSAL_PAUSE => return Err(error.shared()),
            State::Undeclared | State::Refused(..) => {}
        }
        let declared = self.driver.declare(&self.topology).await;
        *state = match &declared {
            Ok(()) => {
                self.done.send_replace(true);
                State::Declared
            }
            Err(error) if error.kind() == BrokerErrorKind::Topology => {
                State::Refused(error.shared(), Instant::now())
            }
            // Whatever else it was, it can be over at the next try.
            Err(_) => State::Undeclared,
        };
        declared
    }

    /// Turns true with the first success, and stays.
    pub(crate) fn done(&self) -> watch::Receiver<bool> {
        self.done.subscribe()
    }

    /// Has it declared again before the next subscription.
    pub(crate) async fn forget(&self) {
        let mut state = self.state.lock().await;
        if matches!(*state, State::Declared) {
            *state = State::Undeclared;
        }
    }
}

impl<D: Database> Clone for Declaration<D> {
    fn clone(&self) -> Self {
        Self {
            driver: self.driver.clone(),
            topology: self.topology.clone(),
            state: self.state.clone(),
            done: self.done.clone(),
        }
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::BoxFuture;

    use super::*;
    use crate::Sqlite;
    use crate::broker::{Capabilities, PartitionQueue, Publisher, Subscription};

    /// A broker that refuses every declaration in one way, and counts them.
    struct Refusing {
        kind: BrokerErrorKind,
        asked: AtomicUsize,
    }

    impl BrokerDriver<Sqlite> for Refusing {
        fn capabilities(&self) -> Capabilities {
            unreachable!("only declares")
        }

        fn name(&self) -> &'static str {
            "refusing"
        }

        fn address(&self) -> String {
            String::new()
        }

        fn declare<'a>(&'a self, _: &'a Topology) -> BoxFuture<'a, Result<(), BrokerError>> {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let error = BrokerError::new("provide the queue \"q.0\"", self.kind);
            Box::pin(async { Err(error.with_source("'quorum' is not 'classic'")) })
        }

        fn publisher(&self) -> BoxFuture<'_, Result<Box<dyn Publisher<Sqlite>>, BrokerError>> {
            unreachable!("only declares")
        }

        fn subscribe<'a>(
            &'a self,
            _: &'a PartitionQueue,
        ) -> BoxFuture<'a, Result<Box<dyn Subscription<Sqlite>>, BrokerError>> {
            unreachable!("only declares")
        }
    }

    async fn asked_in_a_minute(kind: BrokerErrorKind) -> usize {
        let driver = Arc::new(Refusing {
            kind,
            asked: AtomicUsize::new(0),
        });
        let topology = Topology {
            consumer: "q".to_owned(),
            partitions: 8,
            types: Vec::new(),
        };
        let declaration = Declaration::<Sqlite>::new(driver.clone(), topology);
        for _ in 0..60 {
            for _partition in 0..8 {
                let error = declaration.ensure().await.expect_err("a refusal");
                assert_eq!(error.kind(), kind);
                let source = std::error::Error::source(&error).expect("a source");
                assert_eq!(source.to_string(), "'quorum' is not 'classic'");
                // What its actor does after a failure.
                declaration.forget().await;
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        driver.asked.load(Ordering::SeqCst)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_topology_is_asked_for_four_times_a_minute_by_all_actors_together() {
        assert_eq!(asked_in_a_minute(BrokerErrorKind::Topology).await, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_declaration_is_not_done() {
        let driver = Arc::new(Refusing {
            kind: BrokerErrorKind::Unavailable,
            asked: AtomicUsize::new(0),
        });
        let topology = Topology {
            consumer: "q".to_owned(),
            partitions: 1,
            types: Vec::new(),
        };
        let declaration = Declaration::<Sqlite>::new(driver, topology);
        declaration.ensure().await.expect_err("no broker");
        assert!(!*declaration.done().borrow());
    }

    #[tokio::test(start_paused = true)]
    async fn a_broker_that_is_not_there_is_asked_by_each_actor_at_each_try() {
        assert_eq!(asked_in_a_minute(BrokerErrorKind::Unavailable).await, 480);
    }
}
