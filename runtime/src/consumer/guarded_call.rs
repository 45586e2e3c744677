use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::future::LocalBoxFuture;

use super::HandleError;
use crate::supervision::panic_text;

/// The call of a handler, which may be dropped before its end: at its deadline, or when the process
/// stops. What the handler holds then may panic, and that is not to be a panic of whoever drops it.
pub(super) struct GuardedCall<'a>(Option<LocalBoxFuture<'a, Result<(), HandleError>>>);

impl<'a> GuardedCall<'a> {
    pub(super) fn new(call: LocalBoxFuture<'a, Result<(), HandleError>>) -> Self {
        Self(Some(call))
    }
}

impl Future for GuardedCall<'_> {
    type Output = Result<(), HandleError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Some(call) => call.as_mut().poll(context),
            None => Poll::Pending,
        }
    }
}

impl Drop for GuardedCall<'_> {
    fn drop(&mut self) {
        let call = self.0.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(call))) {
            let panic = panic_text(panic.as_ref());
            tracing::error!(%panic, "a handler panicked when it was dropped");
        }
    }
}
