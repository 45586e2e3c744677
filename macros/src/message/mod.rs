//! `#[derive(Message)]`.

mod ast;
mod attr;
mod expand;
mod fallback;
mod retry;
mod valid;

use proc_macro2::TokenStream;
use syn::DeriveInput;

use crate::mistakes::Mistakes;

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let ast = ast::Message::new(input, &mut mistakes);
    let valid = valid::Message::check(&ast, &mut mistakes);
    match valid {
        Some(valid) if mistakes.is_empty() => expand::expand(&valid),
        _ => fallback::expand(&ast, mistakes),
    }
}

#[cfg(test)]
mod tests;
