//! The item that carries `#[derive(Consumer)]`.

use syn::{DeriveInput, Generics, Ident};

use super::attr::Attributes;
use crate::mistakes::Mistakes;

/// A type that shall be a consumer.
pub(crate) struct Consumer<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) generics: &'a Generics,
    pub(crate) attributes: Attributes,
}

impl<'a> Consumer<'a> {
    pub(crate) fn new(input: &'a DeriveInput, mistakes: &mut Mistakes) -> Self {
        let attributes = Attributes::read(&input.attrs, mistakes);
        Self {
            ident: &input.ident,
            generics: &input.generics,
            attributes,
        }
    }
}
