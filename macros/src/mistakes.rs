//! Every mistake of one derive, reported together.

use std::fmt::Display;

use proc_macro2::{Span, TokenStream};

/// Collects mistakes, so that one run of the compiler shows all of them.
#[derive(Debug, Default)]
pub(crate) struct Mistakes {
    found: Option<syn::Error>,
}

impl Mistakes {
    /// Adds a mistake at a token.
    pub(crate) fn at(&mut self, span: Span, words: impl Display) {
        self.add(syn::Error::new(span, words));
    }

    /// Adds a mistake that already has its place.
    pub(crate) fn add(&mut self, mistake: syn::Error) {
        match &mut self.found {
            Some(found) => found.combine(mistake),
            None => self.found = Some(mistake),
        }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.found.is_none()
    }

    /// The mistakes as `compile_error!`s, each at its token; no tokens for none.
    pub(crate) fn into_compile_errors(self) -> TokenStream {
        self.found
            .map(|found| found.into_compile_error())
            .unwrap_or_default()
    }

    /// The words of every mistake, in the order in which they were found.
    #[cfg(test)]
    pub(crate) fn words(&self) -> Vec<String> {
        let found = self.found.iter().flatten();
        found.map(|mistake| mistake.to_string()).collect()
    }
}
