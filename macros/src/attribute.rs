//! Reading a helper attribute: `#[message(name = value, …)]` or `#[consumer(name(…), …)]`.
//!
//! syn stops at the first mistake; here reading goes on after the next comma, so that all are found
//! in one go.

use proc_macro2::{Span, TokenTree};
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Ident, LitInt, Meta, Token, parenthesized};

use crate::did_you_mean::{did_you_mean, nearest};
use crate::mistakes::Mistakes;

/// One thing that a helper attribute can hold.
pub(crate) struct Known {
    /// Its name.
    pub(crate) name: &'static str,
    /// How it is written, `name = value` or `name(…)`; shown when it is written otherwise.
    pub(crate) form: &'static str,
}

impl Known {
    fn is_list(&self) -> bool {
        self.form
            .strip_prefix(self.name)
            .is_some_and(|rest| rest.starts_with('('))
    }

    fn mistake(&self, span: Span) -> syn::Error {
        syn::Error::new(span, format!("`{}` is written `{}`", self.name, self.form))
    }
}

/// Which attributes were written, readable or not; each with the token of its name.
#[derive(Debug, Default)]
pub(crate) struct Written {
    tokens: Vec<Ident>,
    /// Names that a misspelt one was probably meant to be.
    meant: Vec<String>,
}

impl Written {
    /// The token of an attribute's name, if it was written.
    pub(crate) fn get(&self, name: &str) -> Option<&Ident> {
        self.tokens.iter().find(|written| written.unraw() == name)
    }

    /// Whether an attribute was neither written nor misspelt.
    pub(crate) fn lacks(&self, name: &str) -> bool {
        self.get(name).is_none() && !self.meant.iter().any(|meant| meant == name)
    }
}

/// Reads all attributes of this `helper`; `read` takes the value of each known name, which comes
/// once.
pub(crate) fn read_attributes(
    attributes: &[Attribute],
    helper: &str,
    known: &[Known],
    mistakes: &mut Mistakes,
    mut read: impl FnMut(&str, ParseStream<'_>, &mut Mistakes) -> syn::Result<()>,
) -> Written {
    let mut written = Written::default();
    for attribute in attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident(helper))
    {
        let Meta::List(list) = &attribute.meta else {
            let form = known.first().map_or("…", |known| known.form);
            mistakes.add(syn::Error::new_spanned(
                &attribute.meta,
                format!("`{helper}` is written `#[{helper}({form}, …)]`"),
            ));
            continue;
        };
        let items = |input: ParseStream<'_>| {
            items(input, mistakes, |input, mistakes| {
                item(input, known, &mut written, mistakes, &mut read)
            });
            Ok(())
        };
        if let Err(mistake) = list.parse_args_with(items) {
            mistakes.add(mistake);
        }
    }
    written
}

/// Reads items separated by commas; after one with a mistake, goes on behind its comma.
pub(crate) fn items(
    input: ParseStream<'_>,
    mistakes: &mut Mistakes,
    mut item: impl FnMut(ParseStream<'_>, &mut Mistakes) -> syn::Result<()>,
) {
    while !input.is_empty() {
        let mut outcome = item(input, mistakes);
        if outcome.is_ok() && !input.is_empty() && !input.peek(Token![,]) {
            outcome = Err(input.error("expected a comma"));
        }
        if let Err(mistake) = outcome {
            mistakes.add(mistake);
        }
        skip_behind_comma(input);
    }
}

/// Reads one `name = value` or `name(…)`.
fn item(
    input: ParseStream<'_>,
    known: &[Known],
    written: &mut Written,
    mistakes: &mut Mistakes,
    read: &mut impl FnMut(&str, ParseStream<'_>, &mut Mistakes) -> syn::Result<()>,
) -> syn::Result<()> {
    let token = input.call(Ident::parse_any)?;
    let name = token.unraw().to_string();
    let Some(known_one) = known.iter().find(|known| known.name == name) else {
        let names: Vec<String> = known.iter().map(|known| known.name.to_owned()).collect();
        let hint = did_you_mean(&name, &names, "the attributes are");
        mistakes.at(token.span(), format!("unknown attribute `{name}`; {hint}"));
        written.meant.extend(nearest(&name, &names).cloned());
        skip_to_comma(input);
        return Ok(());
    };
    if written.get(&name).is_some() {
        mistakes.at(token.span(), format!("duplicate attribute `{name}`"));
        skip_to_comma(input);
        return Ok(());
    }
    let span = token.span();
    written.tokens.push(token);
    if !known_one.is_list() {
        input
            .parse::<Token![=]>()
            .map_err(|_| known_one.mistake(span))?;
    }
    // syn's words are about tokens; these are about the attribute.
    let start = if input.is_empty() { span } else { input.span() };
    read(&name, input, mistakes).map_err(|_| known_one.mistake(start))
}

/// Reads the values of `name(name = value, …)`, as [`read_attributes`] reads an attribute's.
pub(crate) fn read_list(
    input: ParseStream<'_>,
    known: &[Known],
    mistakes: &mut Mistakes,
    mut read: impl FnMut(&str, ParseStream<'_>, &mut Mistakes) -> syn::Result<()>,
) -> syn::Result<()> {
    let content;
    parenthesized!(content in input);
    let mut written = Written::default();
    items(&content, mistakes, |input, mistakes| {
        item(input, known, &mut written, mistakes, &mut read)
    });
    Ok(())
}

/// Skips one item whatever it holds: commas in brackets are not seen, nor are those in `<…>` of a
/// path.
fn skip_to_comma(input: ParseStream<'_>) {
    let mut angles = 0usize;
    let mut before = ' ';
    while !input.is_empty() && (angles > 0 || !input.peek(Token![,])) {
        match input.parse::<TokenTree>() {
            Ok(TokenTree::Punct(punct)) => {
                match punct.as_char() {
                    '<' => angles += 1,
                    '>' if before != '=' && before != '-' => angles = angles.saturating_sub(1),
                    _ => {}
                }
                before = punct.as_char();
            }
            Ok(_) => before = ' ',
            Err(_) => return,
        }
    }
}

fn skip_behind_comma(input: ParseStream<'_>) {
    skip_to_comma(input);
    let _ = input.parse::<Token![,]>();
}

/// A whole number without suffix.
pub(crate) fn number(input: ParseStream<'_>) -> syn::Result<LitInt> {
    let number = LitInt::parse(input)?;
    if number.suffix().is_empty() {
        Ok(number)
    } else {
        Err(syn::Error::new(
            number.span(),
            "a number has no suffix here",
        ))
    }
}
