use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use super::{Extract, ExtractError, Failure, HandleError, State};
use crate::message::{Codec, Envelope, Message};
use crate::store::{Database, Tx};

/// An async function that handles a message: `async fn(message: M, tx: &mut Tx<'_, Db>) -> Result<(), Failure>`, with up to four more
/// arguments that implement [`Extract`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler of the message `{M}`",
    note = "a handler is `async fn(message: {M}, tx: &mut Tx<'_, {D}>) -> Result<(), Failure>`, \
            optionally with `Data<T>`, `MessageId` or `DeliveryInfo` after `tx`"
)]
pub trait HandlerFn<D: Database, M, Args>: Send + Sync + 'static {
    /// Calls the function.
    fn call<'a>(
        &'a self,
        message: M,
        tx: &'a mut Tx<'_, D>,
        args: Args,
    ) -> LocalBoxFuture<'a, Result<(), Failure>>;
}

/// An async method of a consumer struct that handles a message: as [`HandlerFn`] with `&self` first.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a handler method of the message `{M}`",
    note = "a handler method is `async fn(&self, message: {M}, tx: &mut Tx<'_, {D}>) -> Result<(), Failure>`, \
            optionally with `Data<T>`, `MessageId` or `DeliveryInfo` after `tx`"
)]
pub trait MethodFn<D: Database, S, M, Args>: Send + Sync + 'static {
    /// Calls the method.
    fn call<'a>(
        &'a self,
        consumer: &'a S,
        message: M,
        tx: &'a mut Tx<'_, D>,
        args: Args,
    ) -> LocalBoxFuture<'a, Result<(), Failure>>;
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

        impl<D, M, F, $($arg),*> HandlerFn<D, M, ($($arg,)*)> for F
        where
            D: Database,
            M: 'static,
            $($arg: 'static,)*
            F: for<'t, 'c> AsyncFn(M, &'t mut Tx<'c, D> $(, $arg)*) -> Result<(), Failure>
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
            ) -> LocalBoxFuture<'a, Result<(), Failure>> {
                // The transaction's inner lifetime is erased by the box: the future holds `tx` itself.
                Box::pin(async move { self(message, tx $(, $arg)*).await })
            }
        }

        impl<D, S, M, F, $($arg),*> MethodFn<D, S, M, ($($arg,)*)> for F
        where
            D: Database,
            S: 'static,
            M: 'static,
            $($arg: 'static,)*
            F: for<'s, 't, 'c> AsyncFn(&'s S, M, &'t mut Tx<'c, D> $(, $arg)*) -> Result<(), Failure>
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
            ) -> LocalBoxFuture<'a, Result<(), Failure>> {
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

/// The glue around a handler for one message type: decode, take the arguments, call. What comes before (begin, inbox) and after (enqueue,
/// commit, acknowledge) is the partition actor's, once per batch.
pub struct Handler<D: Database> {
    glue: Arc<dyn Glue<D>>,
}

impl<D: Database> Handler<D> {
    /// The handler of a function.
    pub fn function<M, Args, F>(function: F) -> Self
    where
        M: Message,
        Args: Arguments + 'static,
        F: HandlerFn<D, M, Args>,
    {
        Self { glue: Arc::new(Function { function, signature: PhantomData::<fn(M, Args)> }) }
    }

    /// The handler of a consumer struct's method.
    pub fn method<S, M, Args, F>(consumer: Arc<S>, method: F) -> Self
    where
        S: Send + Sync + 'static,
        M: Message,
        Args: Arguments + 'static,
        F: MethodFn<D, S, M, Args>,
    {
        Self { glue: Arc::new(Method { consumer, method, signature: PhantomData::<fn(M, Args)> }) }
    }

    /// Decodes the payload, takes the arguments and calls the handler, in the transaction `tx`. A panic is an outcome, not a panic.
    pub(crate) async fn handle(
        &self,
        envelope: &Envelope,
        attempt: u32,
        state: &State,
        tx: &mut Tx<'_, D>,
    ) -> Result<(), HandleError> {
        let call = self.glue.handle(envelope, attempt, state, tx);
        match AssertUnwindSafe(call).catch_unwind().await {
            Ok(outcome) => outcome,
            Err(panic) => Err(HandleError::Panicked(panic_message(panic.as_ref()))),
        }
    }

    /// Checks at start that all shared state is there that the handler asks for.
    pub(crate) fn check(&self, state: &State) -> Result<(), ExtractError> {
        self.glue.check(state)
    }
}

impl<D: Database> Clone for Handler<D> {
    fn clone(&self) -> Self {
        Self { glue: self.glue.clone() }
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

struct Function<F, M, Args> {
    function: F,
    signature: PhantomData<fn(M, Args)>,
}

impl<D, M, Args, F> Glue<D> for Function<F, M, Args>
where
    D: Database,
    M: Message,
    Args: Arguments + 'static,
    F: HandlerFn<D, M, Args>,
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
            self.function.call(message, tx, args).await.map_err(HandleError::Failed)
        })
    }

    fn check(&self, state: &State) -> Result<(), ExtractError> {
        Args::check(state)
    }
}

struct Method<S, F, M, Args> {
    consumer: Arc<S>,
    method: F,
    signature: PhantomData<fn(M, Args)>,
}

impl<D, S, M, Args, F> Glue<D> for Method<S, F, M, Args>
where
    D: Database,
    S: Send + Sync + 'static,
    M: Message,
    Args: Arguments + 'static,
    F: MethodFn<D, S, M, Args>,
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
            self.method.call(&self.consumer, message, tx, args).await.map_err(HandleError::Failed)
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

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a value that is no text".to_owned())
}
