//! A consumer that keeps every rule that can be checked on its tokens.

use std::collections::HashSet;

use syn::ext::IdentExt as _;
use syn::{Generics, Ident, Type};

use super::ast;
use super::attr::Entry;
use crate::mistakes::Mistakes;
use crate::names::{consumer_name_mistake, partitions_of};
use crate::tokens::{at, written};

/// What the code of a consumer is made from.
pub(crate) struct Consumer<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) generics: &'a Generics,
    pub(crate) name: String,
    pub(crate) handles: &'a [Entry],
    pub(crate) partitions: Option<u8>,
    pub(crate) database: Option<&'a Type>,
}

impl<'a> Consumer<'a> {
    /// Checks all rules, so that every mistake is found; the outcome counts only if there was none.
    pub(crate) fn check(ast: &'a ast::Consumer<'a>, mistakes: &mut Mistakes) -> Option<Self> {
        if let Some(lifetime) = ast.generics.lifetimes().next() {
            mistakes.at(
                lifetime.lifetime.span(),
                "a consumer owns its state, since it lives as long as the program: \
                 it has no lifetimes",
            );
        }
        let name = name(ast, mistakes);
        let handles = handles(ast, mistakes);
        let partitions = partitions(ast, mistakes);
        Some(Self {
            ident: ast.ident,
            generics: ast.generics,
            name: name?,
            handles: handles?,
            partitions,
            database: ast.attributes.database.as_ref(),
        })
    }
}

fn name(ast: &ast::Consumer<'_>, mistakes: &mut Mistakes) -> Option<String> {
    let Some(literal) = &ast.attributes.name else {
        if ast.attributes.written.lacks("name") {
            mistakes.at(
                ast.ident.span(),
                format!(
                    "the consumer has no name: add `#[consumer(name = \"{}\")]`, \
                     a name that stays when the Rust type is renamed",
                    ast.ident.unraw().to_string().to_ascii_lowercase()
                ),
            );
        }
        return None;
    };
    if let Some(mistake) = consumer_name_mistake(&literal.value()) {
        mistakes.at(literal.span(), mistake);
    }
    Some(literal.value())
}

fn handles<'a>(ast: &'a ast::Consumer<'a>, mistakes: &mut Mistakes) -> Option<&'a [Entry]> {
    let token = ast.attributes.written.get("handles");
    let Some(handles) = &ast.attributes.handles else {
        if token.is_none() {
            mistakes.at(
                ast.ident.span(),
                "the consumer handles nothing: add `handles(DocumentSigned => on_signed)` with its \
                 messages and their methods",
            );
        }
        return None;
    };
    if let (true, Some(token)) = (handles.is_empty, token) {
        mistakes.at(
            token.span(),
            "the consumer handles nothing: list its messages and their methods, as in \
             `handles(DocumentSigned => on_signed)`",
        );
    }
    let mut seen = HashSet::new();
    for entry in &handles.entries {
        let message = written(&entry.message);
        if !seen.insert(message.clone()) {
            mistakes.at(
                at(&entry.message),
                format!(
                    "a second handler of `{message}`; a consumer has one handler for each message"
                ),
            );
        }
    }
    Some(&handles.entries)
}

fn partitions(ast: &ast::Consumer<'_>, mistakes: &mut Mistakes) -> Option<u8> {
    let literal = ast.attributes.partitions.as_ref()?;
    let partitions = partitions_of(literal.base10_digits());
    partitions
        .map_err(|mistake| mistakes.at(literal.span(), mistake))
        .ok()
}
