use std::error::Error;
use std::future::Future;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll};

use diesel_async::sync_connection_wrapper::SpawnBlocking;
use futures_util::future::BoxFuture;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};

use crate::supervision::Caught;
use crate::supervision::panic::guard;

/// Runs a SQLite connection's statements on the blocking threads of whichever Tokio runtime calls.
///
/// Stands in for diesel-async's own choice, which cannot be used from actors: a statement whose
/// future is dropped there calls `block_in_place`, which panics on the single-threaded runtimes of
/// actix's arbiters, and it runs every statement on the runtime that made the connection, which may
/// be that of an arbiter that has stopped.
///
/// # Cancel safety
/// A statement whose future is dropped has ended (or never begun) when the drop returns: the drop
/// waits for it. So a connection is never closed or used again while a statement runs on it.
///
/// # Panics
/// What panics on a blocking thread goes on panicking in whoever waits for it, with the place and
/// frames that it had there: it is the handler's that asked, and no outage of the database.
#[derive(Clone, Copy, Debug, Default)]
pub struct BlockingThread;

impl SpawnBlocking for BlockingThread {
    fn spawn_blocking<'a, R>(
        &mut self,
        task: impl FnOnce() -> R + Send + 'static,
    ) -> BoxFuture<'a, Result<R, Box<dyn Error + Send + Sync + 'static>>>
    where
        R: Send + 'static,
    {
        let (end, ended) = mpsc::channel::<()>();
        let task = Task { task, end };
        let task = move || {
            // Whole, whether it runs or is dropped before it could.
            let Task { task, end } = { task };
            let result = guard(task);
            drop(end);
            result
        };
        match Handle::try_current() {
            Ok(runtime) => {
                let task = OnThread {
                    task: runtime.spawn_blocking(task),
                    ended,
                };
                Box::pin(async move { task.await.map_err(Into::into) })
            }
            Err(outside) => Box::pin(async move { Err(outside.into()) }),
        }
    }

    fn get_runtime() -> Self {
        Self
    }
}

/// A task, and what tells its end: last of all, after whatever the task owned is gone.
struct Task<T> {
    task: T,
    end: mpsc::Sender<()>,
}

/// A task on a blocking thread, waited for even when nobody wants its result any more.
struct OnThread<R> {
    task: JoinHandle<Result<R, Caught>>,
    ended: mpsc::Receiver<()>,
}

impl<R> Future for OnThread<R> {
    type Output = Result<R, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.task).poll(cx).map(|ended| match ended? {
            Ok(result) => Ok(result),
            Err(panic) => resume_unwind(Box::new(panic)),
        })
    }
}

impl<R> Drop for OnThread<R> {
    fn drop(&mut self) {
        if !self.task.is_finished() {
            self.task.abort();
            // Nothing is ever sent: this returns when the other end is gone.
            let _ = self.ended.recv();
        }
    }
}
