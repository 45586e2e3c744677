//! The item that carries `#[derive(Message)]`.

use syn::{Data, DeriveInput, Generics, Ident, Index, Member};

use super::attr::Attributes;
use crate::mistakes::Mistakes;

/// A type that shall be a message.
pub(crate) struct Message<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) generics: &'a Generics,
    pub(crate) shape: Shape,
    pub(crate) attributes: Attributes,
}

/// What matters of the item's kind: which fields a key can have.
pub(crate) enum Shape {
    Struct(Vec<Member>),
    Enum,
    Union,
}

impl<'a> Message<'a> {
    pub(crate) fn new(input: &'a DeriveInput, mistakes: &mut Mistakes) -> Self {
        let shape = match &input.data {
            Data::Struct(data) => {
                let fields = data.fields.iter().enumerate();
                Shape::Struct(fields.map(|(index, field)| member(index, field)).collect())
            }
            Data::Enum(_) => Shape::Enum,
            Data::Union(_) => Shape::Union,
        };
        Self {
            ident: &input.ident,
            generics: &input.generics,
            shape,
            attributes: Attributes::read(&input.attrs, mistakes),
        }
    }
}

fn member(index: usize, field: &syn::Field) -> Member {
    field
        .ident
        .clone()
        .map_or_else(|| Member::Unnamed(Index::from(index)), Member::Named)
}
