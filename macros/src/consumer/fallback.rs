//! The code of a consumer with mistakes: their errors, and an implementation that never runs, so
//! that the builder's call is not told that there is no consumer.

use proc_macro2::TokenStream;
use quote::quote;

use super::ast::Consumer;
use crate::mistakes::Mistakes;

pub(crate) fn expand(consumer: &Consumer<'_>, mistakes: Mistakes) -> TokenStream {
    let errors = mistakes.into_compile_errors();
    let ident = consumer.ident;
    let (_, arguments, bounds) = consumer.generics.split_for_impl();
    let mut with_database = consumer.generics.clone();
    with_database
        .params
        .push(syn::parse_quote!(PostaDatabase: ::posta::Database));
    let (parameters, _, _) = with_database.split_for_impl();
    quote! {
        #errors
        #[automatically_derived]
        impl #parameters ::core::convert::From<#ident #arguments>
            for ::posta::Consumer<PostaDatabase> #bounds
        {
            fn from(_: #ident #arguments) -> Self {
                ::core::unreachable!()
            }
        }
    }
}
