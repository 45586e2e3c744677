//! `#[message(…)]` as it was written, before any rule is checked.

use syn::ext::IdentExt as _;
use syn::parse::ParseStream;
use syn::{Attribute, Ident, LitInt, LitStr, Member, Path, Type, parenthesized, token};

use super::retry::Retry;
use crate::attribute::{Known, Written, items, number, read_attributes};
use crate::mistakes::Mistakes;

const KNOWN: &[Known] = &[
    Known {
        name: "type",
        form: r#"type = "document.signed""#,
    },
    Known {
        name: "version",
        form: "version = 1",
    },
    Known {
        name: "key",
        form: "key = document_id",
    },
    Known {
        name: "handler",
        form: "handler = notify",
    },
    Known {
        name: "consumer",
        form: r#"consumer = "notifications""#,
    },
    Known {
        name: "codec",
        form: "codec = MyCodec",
    },
    Known {
        name: "database",
        form: "database = MyDb",
    },
    Known {
        name: "retry",
        form: r#"retry(attempts = 5, immediate = 1, base = "1s", cap = "5m")"#,
    },
    Known {
        name: "deadline",
        form: r#"deadline = "30s""#,
    },
    Known {
        name: "after_dead_letter",
        form: r#"after_dead_letter = "continues""#,
    },
];

/// What the attribute holds; `None` is both what was not written and what could not be read.
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) message_type: Option<LitStr>,
    pub(crate) version: Option<LitInt>,
    /// The key's fields; no field in `key = ()`.
    pub(crate) key: Option<Vec<Member>>,
    pub(crate) handler: Option<Path>,
    pub(crate) consumer: Option<LitStr>,
    pub(crate) codec: Option<Type>,
    pub(crate) database: Option<Type>,
    pub(super) retry: Retry,
    pub(crate) deadline: Option<LitStr>,
    pub(crate) after_dead_letter: Option<LitStr>,
    pub(crate) written: Written,
}

impl Attributes {
    pub(crate) fn read(attributes: &[Attribute], mistakes: &mut Mistakes) -> Self {
        let mut read = Self::default();
        let written = read_attributes(
            attributes,
            "message",
            KNOWN,
            mistakes,
            |name, input, mistakes| {
                match name {
                    "type" => read.message_type = Some(input.parse()?),
                    "version" => read.version = Some(number(input)?),
                    "key" => read.key = Some(key(input, mistakes)?),
                    "handler" => read.handler = Some(input.parse()?),
                    "consumer" => read.consumer = Some(input.parse()?),
                    "codec" => read.codec = Some(input.parse()?),
                    "database" => read.database = Some(input.parse()?),
                    "retry" => read.retry.read(input, mistakes)?,
                    "deadline" => read.deadline = Some(input.parse()?),
                    _ => read.after_dead_letter = Some(input.parse()?),
                }
                Ok(())
            },
        );
        Self { written, ..read }
    }
}

/// `field`, `0`, or `(field, field)`.
fn key(input: ParseStream<'_>, mistakes: &mut Mistakes) -> syn::Result<Vec<Member>> {
    if !input.peek(token::Paren) {
        return Ok(vec![field(input)?]);
    }
    let content;
    parenthesized!(content in input);
    let mut fields = Vec::new();
    items(&content, mistakes, |input, _| {
        let span = input.span();
        let field = field(input);
        fields.push(field.map_err(|_| syn::Error::new(span, "a key is made of fields' names"))?);
        Ok(())
    });
    Ok(fields)
}

/// A field's name or index; a keyword stands for the field that is declared with `r#`.
fn field(input: ParseStream<'_>) -> syn::Result<Member> {
    if input.peek(LitInt) {
        return Ok(Member::Unnamed(input.parse()?));
    }
    let name = input.call(Ident::parse_any)?;
    let is_keyword = syn::parse_str::<Ident>(&name.to_string()).is_err();
    let raw = || Ident::new_raw(&name.to_string(), name.span());
    Ok(Member::Named(if is_keyword && !is_path_word(&name) {
        raw()
    } else {
        name.clone()
    }))
}

/// Keywords that cannot be written with `r#`, and so are no field's name.
fn is_path_word(name: &Ident) -> bool {
    ["self", "Self", "super", "crate", "_"]
        .iter()
        .any(|word| name == word)
}
