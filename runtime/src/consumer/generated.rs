//! What the code that `#[derive(Message)]` and `#[derive(Consumer)]` generate calls, and nobody
//! else.

use std::marker::PhantomData;
use std::sync::Arc;

use super::handler::Arguments;
use super::{Consumer, Handler, HandlerFn, MethodFn, Outcome};
use crate::message::Message;
use crate::store::Database;

/// The handler of a function. Its return type is judged apart from its arguments, so that each
/// mistake is named for itself.
pub fn function<D, M, Args, R, F>(function: F) -> Handler<D>
where
    D: Database,
    M: Message,
    Args: Arguments + 'static,
    R: Outcome,
    F: HandlerFn<D, M, Args, R>,
{
    Handler::function_returning(function)
}

/// Adds a method of a consumer struct as the handler of a message type.
pub fn method<D, S, M, Args, R, F>(consumer: Consumer<D>, state: &Arc<S>, method: F) -> Consumer<D>
where
    D: Database,
    S: Send + Sync + 'static,
    M: Message,
    Args: Arguments + 'static,
    R: Outcome,
    F: MethodFn<D, S, M, Args, R>,
{
    consumer.add::<M>(Handler::method_returning(state.clone(), method))
}

/// The message type of `T`, as the constant `NAME`: empty for a type that is no message, so that
/// only [`method`] says so, and says it once.
#[derive(Debug)]
pub struct TypeOf<T>(PhantomData<T>);

impl<T: Message> TypeOf<T> {
    /// The message type. It comes before [`NoType::NAME`], being the type's own.
    pub const NAME: &'static str = T::TYPE;
}

/// What [`TypeOf`] falls back on.
pub trait NoType {
    /// The empty string.
    const NAME: &'static str = "";
}

impl<T> NoType for TypeOf<T> {}

/// Whether two message types are the same string; asked at compile time. The empty string stands
/// for a type that has a mistake of its own, so it equals nothing.
#[must_use]
pub const fn is_same_type(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    if one.is_empty() || one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}
