use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::thread;

use tokio::runtime::{Builder, Handle};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// The driver's own thread and runtime, on which the tasks of all its connections live: sockets,
/// heartbeats, closing.
///
/// Actors run on arbiters, single-threaded runtimes that come and go and that a handler can keep
/// busy for long. A connection whose tasks lived there would die with one arbiter and miss
/// heartbeats while another's actor works. The thread ends when the last clone of the reactor is
/// gone, and each task that it was given holds one.
#[derive(Clone)]
pub(super) struct Reactor {
    handle: Handle,
    alive: mpsc::Sender<Infallible>,
}

impl Reactor {
    /// Starts the thread.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive, mut all_gone) = mpsc::channel(1);
        thread::Builder::new()
            .name("posta-rabbitmq".to_owned())
            .spawn(move || {
                runtime.block_on(async move {
                    // Nothing is ever sent: the channel ends when its last sender is dropped.
                    let _: Option<Infallible> = all_gone.recv().await;
                });
                // Lapin's threads may still wait for a task of theirs; the runtime must not wait
                // for them in turn.
                runtime.shutdown_background();
            })?;
        Ok(Self { handle, alive })
    }

    /// Runs a task to its end, whoever waits for it or not.
    pub(super) fn spawn<F>(&self, task: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        let alive = self.alive.clone();
        self.handle.spawn(async move {
            let output = task.await;
            drop(alive);
            output
        })
    }

    /// What lapin takes a runtime for.
    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }
}
