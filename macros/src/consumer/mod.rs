//! `#[derive(Consumer)]`.

mod ast;
mod attr;
mod expand;
mod fallback;
mod valid;

use proc_macro2::TokenStream;
use syn::DeriveInput;

use crate::mistakes::Mistakes;

pub(crate) fn derive(input: &DeriveInput) -> TokenStream {
    let mut mistakes = Mistakes::default();
    let ast = ast::Consumer::new(input, &mut mistakes);
    let valid = valid::Consumer::check(&ast, &mut mistakes);
    match valid {
        Some(valid) if mistakes.is_empty() => expand::expand(&valid),
        _ => fallback::expand(&ast, mistakes),
    }
}

#[cfg(test)]
mod tests;
