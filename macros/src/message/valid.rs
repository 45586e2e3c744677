//! A message that keeps every rule that can be checked on its tokens.

use std::collections::HashSet;

use syn::ext::IdentExt as _;
use syn::spanned::Spanned as _;
use syn::{Ident, Member, Path, Type};

use super::ast::{self, Shape};
use super::retry::Override;
use crate::did_you_mean::did_you_mean;
use crate::mistakes::Mistakes;
use crate::names::{consumer_name_mistake, message_type_mistake, version_of};

/// What the code of a message is made from.
pub(crate) struct Message<'a> {
    pub(crate) ident: &'a Ident,
    pub(crate) message_type: String,
    pub(crate) version: u32,
    pub(crate) key: Vec<Member>,
    pub(crate) codec: Option<&'a Type>,
    pub(super) retry: Override,
    pub(crate) handled: Option<Handled<'a>>,
}

/// The handler named beside the message.
pub(crate) struct Handled<'a> {
    /// The token `handler`: where an error about a missing `Db` stands.
    pub(crate) token: &'a Ident,
    pub(crate) handler: &'a Path,
    pub(crate) consumer: String,
    pub(crate) database: Option<&'a Type>,
}

impl<'a> Message<'a> {
    /// Checks all rules, so that every mistake is found; the outcome counts only if there was none.
    pub(crate) fn check(ast: &'a ast::Message<'a>, mistakes: &mut Mistakes) -> Option<Self> {
        item(ast, mistakes);
        let message_type = message_type(ast, mistakes);
        let version = version(ast, mistakes);
        let key = key(ast, mistakes);
        let retry = Override::check(ast, mistakes);
        let handled = handled(ast, mistakes);
        Some(Self {
            ident: ast.ident,
            message_type: message_type?,
            version: version?,
            key,
            codec: ast.attributes.codec.as_ref(),
            retry,
            handled,
        })
    }
}

fn item(ast: &ast::Message<'_>, mistakes: &mut Mistakes) {
    if matches!(ast.shape, Shape::Union) {
        mistakes.at(
            ast.ident.span(),
            "a union cannot be a message; a struct or an enum can",
        );
    }
    if let Some(lifetime) = ast.generics.lifetimes().next() {
        mistakes.at(
            lifetime.span(),
            "a message owns its data, since it outlives the transaction: it has no lifetimes",
        );
    } else if let Some(parameter) = ast.generics.params.first() {
        mistakes.at(
            parameter.span(),
            "a message is not generic: one message type is one schema; \
             derive it for each concrete type",
        );
    }
}

fn message_type(ast: &ast::Message<'_>, mistakes: &mut Mistakes) -> Option<String> {
    let Some(literal) = &ast.attributes.message_type else {
        if ast.attributes.written.lacks("type") {
            mistakes.at(
                ast.ident.span(),
                format!(
                    "the message has no type: add `#[message(type = \"{}\")]`, a name that stays \
                     when the Rust type is renamed",
                    dotted(&ast.ident.unraw().to_string())
                ),
            );
        }
        return None;
    };
    let name = literal.value();
    if let Some(mistake) = message_type_mistake(&name) {
        mistakes.at(literal.span(), mistake);
    }
    Some(name)
}

fn version(ast: &ast::Message<'_>, mistakes: &mut Mistakes) -> Option<u32> {
    let Some(literal) = &ast.attributes.version else {
        return Some(1);
    };
    let version = version_of(literal.base10_digits());
    version
        .map_err(|mistake| mistakes.at(literal.span(), mistake))
        .ok()
}

fn key(ast: &ast::Message<'_>, mistakes: &mut Mistakes) -> Vec<Member> {
    let (Some(token), Some(key)) = (ast.attributes.written.get("key"), &ast.attributes.key) else {
        return Vec::new();
    };
    let Shape::Struct(fields) = &ast.shape else {
        mistakes.at(
            token.span(),
            format!(
                "`{}` is no struct, so it has no field that every value has and cannot have \
                 a `key`; put it into a struct beside its key",
                ast.ident
            ),
        );
        return Vec::new();
    };
    if key.is_empty() {
        mistakes.at(
            token.span(),
            "the key names no field; a message without a key has no `key`",
        );
    }
    let mut seen = HashSet::new();
    for field in key {
        let name = name_of(field);
        if !fields.iter().any(|known| name_of(known) == name) {
            mistakes.at(field.span(), unknown_field(ast.ident, &name, fields));
        } else if !seen.insert(name.clone()) {
            mistakes.at(field.span(), format!("`{name}` is in the key twice"));
        }
    }
    key.clone()
}

fn unknown_field(message: &Ident, name: &str, fields: &[Member]) -> String {
    let known: Vec<String> = fields.iter().map(name_of).collect();
    let hint = match known.as_slice() {
        [] => "it has none".to_owned(),
        [only] => format!("its only field is `{only}`"),
        _ => did_you_mean(name, &known, "its fields are"),
    };
    format!("`{name}` is not a field of `{message}`; {hint}")
}

fn handled<'a>(ast: &'a ast::Message<'a>, mistakes: &mut Mistakes) -> Option<Handled<'a>> {
    let attributes = &ast.attributes;
    let written = &attributes.written;
    let handler = written.get("handler");
    match (handler, written.get("consumer")) {
        (Some(handler), None) if written.lacks("consumer") => mistakes.at(
            handler.span(),
            "a `handler` belongs to a consumer: add its name, as in `consumer = \"notifications\"`",
        ),
        (None, Some(consumer)) if written.lacks("handler") => mistakes.at(
            consumer.span(),
            "a `consumer` without a `handler`: add the function, as in `handler = notify`",
        ),
        _ => {}
    }
    if let (true, Some(database)) = (written.lacks("handler"), written.get("database")) {
        mistakes.at(
            database.span(),
            "`database` is the handler's, and there is no `handler`",
        );
    }
    let name = attributes.consumer.as_ref()?;
    if let Some(mistake) = consumer_name_mistake(&name.value()) {
        mistakes.at(name.span(), mistake);
    }
    Some(Handled {
        token: handler?,
        handler: attributes.handler.as_ref()?,
        consumer: name.value(),
        database: attributes.database.as_ref(),
    })
}

fn name_of(field: &Member) -> String {
    match field {
        Member::Named(ident) => ident.unraw().to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

/// `DocumentSigned` as `document.signed`.
fn dotted(name: &str) -> String {
    let mut dotted = String::new();
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !dotted.is_empty() {
            dotted.push('.');
        }
        dotted.push(letter.to_ascii_lowercase());
    }
    dotted
}
