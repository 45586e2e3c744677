use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::DeliveryInfo;
use crate::message::{Envelope, MessageId};

/// State that handlers share, one value per type.
#[derive(Clone, Default)]
pub struct State {
    values: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

impl State {
    /// Adds a value; an earlier one of the same type is replaced.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        self.values.insert(TypeId::of::<T>(), Arc::new(value));
    }

    fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.values.get(&TypeId::of::<T>())?.clone().downcast().ok()
    }

    /// Adds the values of `other` whose types are not here yet.
    pub(crate) fn fill_from(&mut self, other: &Self) {
        for (type_id, value) in &other.values {
            self.values.entry(*type_id).or_insert_with(|| value.clone());
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({} values)", self.values.len())
    }
}

/// Shared state as a handler's argument: `templates: Data<Templates>`, given by
/// [`super::Consumer::data`] or [`crate::Builder::data`].
#[derive(Debug)]
pub struct Data<T: ?Sized>(Arc<T>);

impl<T: ?Sized> Deref for Data<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: ?Sized> Clone for Data<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// A handler asks for a [`Data`] that nobody gave.
#[derive(Debug, thiserror::Error)]
#[error("no shared state of type `{0}` was given to the consumer: add it with `.data(…)`")]
pub struct ExtractError(&'static str);

/// What a handler can ask for after the message and the transaction.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a handler",
    label = "asks for `{Self}`",
    note = "after the message and the transaction a handler may ask for `Data<T>`, `MessageId` or `DeliveryInfo`"
)]
pub trait Extract: Sized {
    /// Takes the argument from the consumer's state or the delivery.
    ///
    /// # Errors
    /// When the state is missing; found at the builder's `start` too, by [`Extract::check`].
    fn extract(state: &State, envelope: &Envelope, attempt: u32) -> Result<Self, ExtractError>;

    /// Checks at start that the argument will be there.
    ///
    /// # Errors
    /// When the state is missing.
    fn check(_state: &State) -> Result<(), ExtractError> {
        Ok(())
    }
}

impl<T: Send + Sync + 'static> Extract for Data<T> {
    fn extract(state: &State, _envelope: &Envelope, _attempt: u32) -> Result<Self, ExtractError> {
        state.get().map(Data).ok_or(ExtractError(type_name::<T>()))
    }

    fn check(state: &State) -> Result<(), ExtractError> {
        state
            .get::<T>()
            .map(drop)
            .ok_or(ExtractError(type_name::<T>()))
    }
}

impl Extract for MessageId {
    fn extract(_state: &State, envelope: &Envelope, _attempt: u32) -> Result<Self, ExtractError> {
        Ok(envelope.id)
    }
}

impl Extract for DeliveryInfo {
    fn extract(_state: &State, envelope: &Envelope, attempt: u32) -> Result<Self, ExtractError> {
        Ok(Self::of(envelope, attempt))
    }
}
