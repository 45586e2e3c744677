use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;

use super::{Extract, ExtractError, Failure, HandleError, State};
use crate::message::{Codec, DecodeError, Envelope, Message};
use crate::store::{Database, Tx};
use crate::supervision::panic::Guarded;

/// An async function that handles a message: `async fn(message: M, tx: &mut Tx<'_, Db>) ->
/// Result<(), Failure>`, with up to four more arguments that implement [`Extract`].
///
/// `R` is what the function returns, free in this trait so that a wrong return type gets an error
/// of its own ([`Outcome`]).
#[diagnostic::on_unimplemented(
    message = "this is not a handler of the message `{M}`",
    label = "expected `async fn(message: {M}, tx: &mut Tx<'_, {D}>) -> Result<(), Failure>`",
    note = "after `tx` a handler may ask for up to four of `Data<T>`, `MessageId` and \
            `DeliveryInfo`; a closure writes its arguments' types"
)]
pub trait HandlerFn<D: Database, M, Args, R = Result<(), Failure>>: Send + Sync + 'static {
    /// Calls the function.
    fn call<'a>(&'a self, message: M, tx: &'a mut Tx<'_, D>, args: Args) -> LocalBoxFuture<'a, R>;
}

/// An async method of a consumer struct that handles a message: as [`HandlerFn`] with `&self`
/// first.
#[diagnostic::on_unimplemented(
    message = "this is not a handler of the message `{M}`",
    label = "expected `async fn(&self, message: {M}, tx: &mut Tx<'_, {D}>) -> Result<(), Failure>`",
    note = "after `tx` a handler may ask for up to four of `Data<T>`, `MessageId` and \
            `DeliveryInfo`"
)]
pub trait MethodFn<D: Database, S, M, Args, R = Result<(), Failure>>:
    Send + Sync + 'static
{
    /// Calls the method.
    fn call<'a>(
        &'a self,
        consumer: &'a S,
        message: M,
        tx: &'a mut Tx<'_, D>,
        args: Args,
    ) -> LocalBoxFuture<'a, R>;
}

/// What a handler returns: `Result<(), Failure>` and nothing else.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "a handler returns `Result<(), Failure>`",
    note = "`?` makes a `Failure` of any error"
)]
pub trait Outcome: sealed::Sealed + 'static {
    /// The outcome as it is.
    fn into_result(self) -> Result<(), Failure>;
}

impl Outcome for Result<(), Failure> {
    fn into_result(self) -> Self {
        self
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for Result<(), super::Failure> {}
}

/// A tuple of arguments, each taken from the delivery.
pub trait Arguments: Sized {
    /// Takes all arguments.
    fn extract(state: &State, envelope: &Envelope, attempt: u32) -> Result<Self, ExtractError>;
    /// Checks all arguments at start.
    fn check(state: &State) -> Result<(), ExtractError>;
}

macro_rules! handlers_of_arity {
    ($($arg:ident),*) => {
        impl<$($arg: Extract),*> Arguments for ($($arg,)*) {
            #[allow(unused_variables)]
            fn extract(state: &State, envelope: &Envelope, attempt: u32) -> Result<Self, ExtractError> {
                Ok(($($arg::extract(state, envelope, attempt)?,)*))
            }

            #[allow(unused_variables)]
            fn check(state: &State) -> Result<(), ExtractError> {
                $($arg::check(state)?;)*
                Ok(())
            }
        }

        impl<D, M, F, R, $($arg),*> HandlerFn<D, M, ($($arg,)*), R> for F
        where
            D: Database,
            M: 'static,
            $($arg: 'static,)*
            F: for<'t, 'c> AsyncFn(M, &'t mut Tx<'c, D> $(, $arg)*) -> R
                + Send
                + Sync
                + 'static,
        {
            #[allow(non_snake_case)]
            fn call<'a>(
                &'a self,
                message: M,
                tx: &'a mut Tx<'_, D>,
                ($($arg,)*): ($($arg,)*),
            ) -> LocalBoxFuture<'a, R> {
                // The transaction's inner lifetime is erased by the box: the future holds `tx`
                // itself.
                Box::pin(async move { self(message, tx $(, $arg)*).await })
            }
        }

        impl<D, S, M, F, R, $($arg),*> MethodFn<D, S, M, ($($arg,)*), R> for F
        where
            D: Database,
            S: 'static,
            M: 'static,
            $($arg: 'static,)*
            F: for<'s, 't, 'c> AsyncFn(&'s S, M, &'t mut Tx<'c, D> $(, $arg)*) -> R
                + Send
                + Sync
                + 'static,
        {
            #[allow(non_snake_case)]
            fn call<'a>(
                &'a self,
                consumer: &'a S,
                message: M,
                tx: &'a mut Tx<'_, D>,
                ($($arg,)*): ($($arg,)*),
            ) -> LocalBoxFuture<'a, R> {
                Box::pin(async move { self(consumer, message, tx $(, $arg)*).await })
            }
        }
    };
}

handlers_of_arity!();
handlers_of_arity!(A1);
handlers_of_arity!(A1, A2);
handlers_of_arity!(A1, A2, A3);
handlers_of_arity!(A1, A2, A3, A4);

/// The glue around a handler for one message type: decode, take the arguments, call. What comes
/// before (begin, inbox) and after (enqueue, commit, acknowledge) is the partition actor's, once
/// per batch.
pub struct Handler<D: Database> {
    glue: Arc<dyn Glue<D>>,
    decodes: Decode,
}

/// Decodes a payload, only to see whether it can be done.
type Decode = fn(&Bytes, u32) -> Result<(), DecodeError>;

fn decode<M: Message>(payload: &Bytes, version: u32) -> Result<(), DecodeError> {
    M::Codec::decode(payload, version).map(drop)
}

impl<D: Database> Handler<D> {
    /// The handler of a function.
    pub fn function<M, Args, F>(function: F) -> Self
    where
        M: Message,
        Args: Arguments + 'static,
        F: HandlerFn<D, M, Args>,
    {
        Self::function_returning(function)
    }

    /// As [`Handler::function`], for a function whose return type is still to be judged.
    pub(crate) fn function_returning<M, Args, R, F>(function: F) -> Self
    where
        M: Message,
        Args: Arguments + 'static,
        R: Outcome,
        F: HandlerFn<D, M, Args, R>,
    {
        Self {
            glue: Arc::new(Function {
                function,
                signature: PhantomData::<fn(M, Args) -> R>,
            }),
            decodes: decode::<M>,
        }
    }

    /// The handler of a consumer struct's method.
    pub fn method<S, M, Args, F>(consumer: Arc<S>, method: F) -> Self
    where
        S: Send + Sync + 'static,
        M: Message,
        Args: Arguments + 'static,
        F: MethodFn<D, S, M, Args>,
    {
        Self::method_returning(consumer, method)
    }

    /// As [`Handler::method`], for a method whose return type is still to be judged.
    pub(crate) fn method_returning<S, M, Args, R, F>(consumer: Arc<S>, method: F) -> Self
    where
        S: Send + Sync + 'static,
        M: Message,
        Args: Arguments + 'static,
        R: Outcome,
        F: MethodFn<D, S, M, Args, R>,
    {
        let signature = PhantomData::<fn(M, Args) -> R>;
        Self {
            glue: Arc::new(Method {
                consumer,
                method,
                signature,
            }),
            decodes: decode::<M>,
        }
    }

    /// Decodes the payload, takes the arguments and calls the handler, in the transaction `tx`. A
    /// panic is an outcome, not a panic.
    pub(crate) async fn handle(
        &self,
        envelope: &Envelope,
        attempt: u32,
        state: &State,
        tx: &mut Tx<'_, D>,
    ) -> Result<(), HandleError> {
        Guarded::new(self.glue.handle(envelope, attempt, state, tx))
            .await
            .unwrap_or_else(|panic| Err(HandleError::Panicked(panic)))
    }

    /// Whether a payload decodes; an operator asks before a replay. The codec may panic.
    pub(crate) fn decodes(&self, payload: &Bytes, version: u32) -> Result<(), DecodeError> {
        (self.decodes)(payload, version)
    }

    /// Checks at start that all shared state is there that the handler asks for.
    pub(crate) fn check(&self, state: &State) -> Result<(), ExtractError> {
        self.glue.check(state)
    }
}

impl<D: Database> Clone for Handler<D> {
    fn clone(&self) -> Self {
        Self {
            glue: self.glue.clone(),
            decodes: self.decodes,
        }
    }
}

impl<D: Database> fmt::Debug for Handler<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

/// A handler whose function's type is erased.
trait Glue<D: Database>: Send + Sync {
    fn handle<'a>(
        &'a self,
        envelope: &'a Envelope,
        attempt: u32,
        state: &'a State,
        tx: &'a mut Tx<'_, D>,
    ) -> LocalBoxFuture<'a, Result<(), HandleError>>;

    fn check(&self, state: &State) -> Result<(), ExtractError>;
}

struct Function<F, M, Args, R> {
    function: F,
    signature: PhantomData<fn(M, Args) -> R>,
}

impl<D, M, Args, R, F> Glue<D> for Function<F, M, Args, R>
where
    D: Database,
    M: Message,
    Args: Arguments + 'static,
    R: Outcome,
    F: HandlerFn<D, M, Args, R>,
{
    fn handle<'a>(
        &'a self,
        envelope: &'a Envelope,
        attempt: u32,
        state: &'a State,
        tx: &'a mut Tx<'_, D>,
    ) -> LocalBoxFuture<'a, Result<(), HandleError>> {
        Box::pin(async move {
            let (message, args) = arrange(envelope, attempt, state)?;
            let outcome = self.function.call(message, tx, args).await;
            outcome.into_result().map_err(HandleError::Failed)
        })
    }

    fn check(&self, state: &State) -> Result<(), ExtractError> {
        Args::check(state)
    }
}

struct Method<S, F, M, Args, R> {
    consumer: Arc<S>,
    method: F,
    signature: PhantomData<fn(M, Args) -> R>,
}

impl<D, S, M, Args, R, F> Glue<D> for Method<S, F, M, Args, R>
where
    D: Database,
    S: Send + Sync + 'static,
    M: Message,
    Args: Arguments + 'static,
    R: Outcome,
    F: MethodFn<D, S, M, Args, R>,
{
    fn handle<'a>(
        &'a self,
        envelope: &'a Envelope,
        attempt: u32,
        state: &'a State,
        tx: &'a mut Tx<'_, D>,
    ) -> LocalBoxFuture<'a, Result<(), HandleError>> {
        Box::pin(async move {
            let (message, args) = arrange(envelope, attempt, state)?;
            let outcome = self.method.call(&self.consumer, message, tx, args).await;
            outcome.into_result().map_err(HandleError::Failed)
        })
    }

    fn check(&self, state: &State) -> Result<(), ExtractError> {
        Args::check(state)
    }
}

/// What every call needs: the decoded message and the further arguments.
fn arrange<M: Message, Args: Arguments>(
    envelope: &Envelope,
    attempt: u32,
    state: &State,
) -> Result<(M, Args), HandleError> {
    let message =
        M::Codec::decode(&envelope.payload, envelope.version).map_err(HandleError::Decode)?;
    let args = Args::extract(state, envelope, attempt).map_err(HandleError::Extract)?;
    Ok((message, args))
}

#[cfg(all(test, feature = "sqlite"))]
mod tests;
