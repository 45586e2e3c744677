use std::sync::Arc;

use actix::prelude::*;
use futures_util::FutureExt as _;
use tokio::sync::{oneshot, watch};

use super::Fitness;
use super::arbiters::Arbiters;
use super::child::{Body, ChildError};
use super::life::{Life, Order};
use super::supervisor::{ChildSpec, Drained, Start, Supervisor, Tell};

/// One concern's supervisor, to whoever starts children of it, at any time. Cheap to clone, and
/// valid as long as the runtime.
#[derive(Clone)]
pub(crate) struct Concern {
    pub(super) supervisor: Addr<Supervisor>,
    pub(super) arbiters: Arbiters,
    pub(super) fitness: watch::Receiver<Fitness>,
}

/// Where a child lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// With the supervisors: nothing of the application's runs there, and nothing that waits
    /// without yielding may.
    Inner,
    /// On the next of the other arbiters.
    Spread,
}

// At most one message per child and order is in the supervisor's mailbox, which is bounded by their
// number.
impl Concern {
    /// Starts a child under a name that is unique in the runtime; `body` is called anew at every
    /// start. In a drain nothing is started.
    pub(crate) fn start<F, B>(&self, name: impl Into<Arc<str>>, place: Place, body: B)
    where
        F: Future<Output = Result<(), ChildError>> + 'static,
        B: Fn(Life) -> F + Send + Sync + 'static,
    {
        let body: Body = Arc::new(move |life| body(life).boxed_local());
        let place = match place {
            Place::Inner => 0,
            Place::Spread => self.arbiters.next_place(),
        };
        self.supervisor.do_send(Start(ChildSpec {
            name: name.into(),
            place,
            body,
        }));
    }

    /// Has a child drain alone, and for good: it finishes what is in flight, and leaves the
    /// registry. A child of its name can be started when it has left.
    #[allow(dead_code)] // Nobody has left for good as yet.
    pub(crate) fn finish(&self, name: impl Into<Arc<str>>) {
        self.tell(name, Order::Finish);
    }

    /// Has a child's body dropped where it stands and started again, which counts as a failure for
    /// this reason.
    pub(crate) fn restart(&self, name: impl Into<Arc<str>>, reason: String) {
        self.tell(name, Order::End(reason));
    }

    /// Waits until every child has finished; only sensible in a drain.
    pub(crate) async fn drained(&self) {
        let (drained, wait) = oneshot::channel();
        // A supervisor that is gone has nothing left to drain.
        if self.supervisor.send(Drained(drained)).await.is_ok() {
            let _ = wait.await;
        }
    }

    /// Whether it does its work, at any time.
    pub(crate) fn fitness(&self) -> watch::Receiver<Fitness> {
        self.fitness.clone()
    }

    /// Whether its supervisor is there.
    pub(crate) fn is_supervised(&self) -> bool {
        self.supervisor.connected()
    }

    fn tell(&self, name: impl Into<Arc<str>>, order: Order) {
        let name = name.into();
        self.supervisor.do_send(Tell { name, order });
    }
}
