//! Where generated tokens stand.

use proc_macro2::Span;
use quote::ToTokens;

/// A span for generated code that points at the user's token but resolves names where the derive
/// stands, so that an error of the compiler about that code names the guilty token.
pub(crate) fn at(tokens: &impl ToTokens) -> Span {
    let last = tokens.to_token_stream().into_iter().last();
    let place = last.map_or_else(Span::call_site, |token| token.span());
    Span::call_site().located_at(place)
}

/// A path or type as it was written, without the blanks that tokens are printed with.
pub(crate) fn written(tokens: &impl ToTokens) -> String {
    tokens.to_token_stream().to_string().replace(' ', "")
}
