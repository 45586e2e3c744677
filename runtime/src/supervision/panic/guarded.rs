use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Caught, hook};

/// Calls something that may panic.
///
/// # Errors
/// With the panic.
pub(crate) fn guard<T>(call: impl FnOnce() -> T) -> Result<T, Caught> {
    hook::inside(|| catch_unwind(AssertUnwindSafe(call)))
        .map_err(|payload| Caught::new(payload.as_ref(), hook::taken()))
}

/// A future that may panic when it is polled, and when it is dropped before its end: what it holds
/// then may panic, and that is not to be a panic of whoever drops it.
pub(crate) struct Guarded<F>(Option<Pin<Box<F>>>);

impl<F: Future> Guarded<F> {
    pub(crate) fn new(future: F) -> Self {
        Self(Some(Box::pin(future)))
    }
}

impl<F: Future> Future for Guarded<F> {
    type Output = Result<F::Output, Caught>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = &mut self.0 else {
            return Poll::Pending;
        };
        match guard(|| future.as_mut().poll(context)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}

impl<F> Drop for Guarded<F> {
    fn drop(&mut self) {
        let future = self.0.take();
        if let Err(panic) = guard(|| drop(future)) {
            tracing::error!(%panic, backtrace = panic.backtrace, "a panic when something was dropped");
        }
    }
}
