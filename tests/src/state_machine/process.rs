use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

use posta::Tables;
use posta::supervision::{ChildState, Registry, at_crash_points};
use tokio::sync::oneshot;

use super::service::{Faults, Token, builder};
use crate::world::{TestDatabase, World, log, until};

/// Where processes are to die: by their actor systems, the point and how often it is reached until
/// then.
static ARMED: LazyLock<Mutex<HashMap<usize, (&'static str, u8)>>> = LazyLock::new(Mutex::default);

fn armed() -> MutexGuard<'static, HashMap<usize, (&'static str, u8)>> {
    ARMED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Called at every crash point of the test's process.
fn reach(point: &'static str) {
    let Some(system) = actix::System::try_current() else {
        return;
    };
    let mut armed = armed();
    let Some((_, left)) = armed
        .get_mut(&system.id())
        .filter(|(armed, _)| *armed == point)
    else {
        return;
    };
    *left = left.saturating_sub(1);
    if *left == 0 {
        armed.remove(&system.id());
        drop(armed);
        system.stop();
        // Ends the actor where it stands; the others end with the system.
        std::panic::resume_unwind(Box::new("a crash"));
    }
}

/// A runtime with an actor system of its own, on threads of its own: what a process is to others,
/// who know it by the database alone.
///
/// When its system stops, everything that runs in it is dropped where it stands, between two
/// statements or while one is under way: no drain, nothing given back, connections closed. That is
/// what the database sees of a process that was killed.
pub(super) struct Process {
    system: actix::System,
    registry: Registry,
    drain: Option<oneshot::Sender<()>>,
    thread: JoinHandle<()>,
    token: Weak<Token>,
}

impl Process {
    /// Starts one, and waits until it runs.
    pub(super) async fn start<D: TestDatabase>(
        world: &World<D>,
        faults: &Faults,
        is_new: bool,
    ) -> Self {
        at_crash_points(reach);
        let token = Arc::new(Token);
        let weak = Arc::downgrade(&token);
        let (started, running) = oneshot::channel();
        let (drain, drained) = oneshot::channel();
        let (url, tables) = (world.database_url.clone(), world.tables.clone());
        let faults = faults.clone();
        let thread = std::thread::spawn(move || {
            run::<D>(&url, tables, &faults, token, is_new, started, drained);
        });
        let (system, registry) = running.await.expect("a running service");
        Self {
            system,
            registry,
            drain: Some(drain),
            thread,
            token: weak,
        }
    }

    /// Has it die when it reaches this point for the nth time.
    pub(super) fn arm(&self, point: &'static str, times: u8) {
        armed().insert(self.system.id(), (point, times));
    }

    /// Has it live.
    pub(super) fn disarm(&self) {
        armed().remove(&self.system.id());
    }

    /// What it does and what it has logged last; it goes on without a log.
    pub(super) fn story(&self) -> Vec<String> {
        let children = self.registry.children().into_iter();
        let mut story: Vec<String> = children
            .map(|(name, child)| match (child.state, child.last_error) {
                (ChildState::Running, None) => format!("{name} runs"),
                (state, error) => {
                    let error = error.map(|(error, _)| error);
                    format!("{name}: {state:?}, restarts {}, {error:?}", child.restarts)
                }
            })
            .collect();
        story.extend(log::take(self.system.id()));
        story
    }

    /// Whether it has died.
    pub(super) fn is_dead(&self) -> bool {
        self.thread.is_finished()
    }

    /// Kills it, if it has not died, and waits for its end.
    pub(super) async fn kill(self) {
        self.disarm();
        self.system.stop();
        self.ended().await;
    }

    /// Drains it and waits for its end.
    pub(super) async fn drain(mut self) {
        self.disarm();
        // An error: it has died.
        let _ = self.drain.take().map(|drain| drain.send(()));
        self.ended().await;
    }

    async fn ended(self) {
        log::take(self.system.id());
        let thread = self.thread;
        tokio::task::spawn_blocking(move || thread.join())
            .await
            .expect("a thread that can be waited for")
            .expect("a service that ends");
        // Its actors' threads stop by themselves.
        until("a process is gone", async || self.token.strong_count() == 0).await;
    }
}

fn run<D: TestDatabase>(
    database_url: &str,
    tables: Tables,
    faults: &Faults,
    token: Arc<Token>,
    is_new: bool,
    started: oneshot::Sender<(actix::System, Registry)>,
    drained: oneshot::Receiver<()>,
) {
    let runner = actix::System::new();
    runner.block_on(async {
        log::keep(actix::System::current().id());
        let builder = builder::<D>(database_url, tables, faults, token, is_new);
        let posta = builder.start().await.expect("a service that starts");
        let registry = posta.registry().clone();
        actix::spawn(async move {
            if drained.await.is_ok() {
                posta.stop().await.expect("a drain within its grace");
                actix::System::current().stop();
            }
            // Kept until its system stops.
            std::future::pending::<()>().await;
        });
        let _ = started.send((actix::System::current(), registry));
    });
    runner.run().expect("an end without an error");
}
