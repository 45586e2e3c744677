//! `#[consumer(…)]` as it was written, before any rule is checked.

use syn::parse::{Parse as _, ParseStream};
use syn::{Attribute, Ident, LitInt, LitStr, Path, Token, Type, parenthesized};

use crate::attribute::{Known, Written, items, number, read_attributes};
use crate::mistakes::Mistakes;

const KNOWN: &[Known] = &[
    Known {
        name: "name",
        form: r#"name = "notifications""#,
    },
    Known {
        name: "handles",
        form: "handles(DocumentSigned => on_signed)",
    },
    Known {
        name: "partitions",
        form: "partitions = 8",
    },
    Known {
        name: "database",
        form: "database = MyDb",
    },
];

/// What the attribute holds; `None` is both what was not written and what could not be read.
#[derive(Default)]
pub(crate) struct Attributes {
    pub(crate) name: Option<LitStr>,
    pub(crate) handles: Option<Handles>,
    pub(crate) partitions: Option<LitInt>,
    pub(crate) database: Option<Type>,
    pub(crate) written: Written,
}

/// What stands in `handles(…)`.
pub(crate) struct Handles {
    /// The entries that could be read.
    pub(crate) entries: Vec<Entry>,
    /// Whether there was anything at all.
    pub(crate) is_empty: bool,
}

/// `Message => method`.
pub(crate) struct Entry {
    pub(crate) message: Path,
    pub(crate) method: Ident,
}

impl Attributes {
    pub(crate) fn read(attributes: &[Attribute], mistakes: &mut Mistakes) -> Self {
        let mut read = Self::default();
        let written = read_attributes(
            attributes,
            "consumer",
            KNOWN,
            mistakes,
            |name, input, mistakes| {
                match name {
                    "name" => read.name = Some(input.parse()?),
                    "handles" => read.handles = Some(handles(input, mistakes)?),
                    "partitions" => read.partitions = Some(number(input)?),
                    _ => read.database = Some(input.parse()?),
                }
                Ok(())
            },
        );
        Self { written, ..read }
    }
}

fn handles(input: ParseStream<'_>, mistakes: &mut Mistakes) -> syn::Result<Handles> {
    let content;
    parenthesized!(content in input);
    let is_empty = content.is_empty();
    let mut entries = Vec::new();
    items(&content, mistakes, |input, _| {
        let span = input.span();
        let entry = Entry::read(input);
        entries.push(entry.map_err(|_| {
            syn::Error::new(
                span,
                "a handler is written `DocumentSigned => on_signed`: message and method",
            )
        })?);
        Ok(())
    });
    Ok(Handles { entries, is_empty })
}

impl Entry {
    fn read(input: ParseStream<'_>) -> syn::Result<Self> {
        let message = Path::parse(input)?;
        input.parse::<Token![=>]>()?;
        Ok(Self {
            message,
            method: input.parse()?,
        })
    }
}
