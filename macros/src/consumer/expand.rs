//! The code of a consumer.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};

use super::attr::Entry;
use super::valid::Consumer;
use crate::tokens::{at, written};

pub(crate) fn expand(consumer: &Consumer<'_>) -> TokenStream {
    let Consumer {
        ident,
        generics,
        name,
        handles,
        partitions,
        database,
    } = consumer;
    let database = match database {
        Some(database) => quote!(#database),
        None => quote_spanned!(at(ident)=> Db),
    };
    let mut bounds = (*generics).clone();
    if !bounds.params.is_empty() {
        let (_, arguments, _) = generics.split_for_impl();
        bounds
            .make_where_clause()
            .predicates
            .push(syn::parse_quote! {
                #ident #arguments: ::core::marker::Send + ::core::marker::Sync + 'static
            });
    }
    let (parameters, arguments, bounds) = bounds.split_for_impl();
    let partitions = partitions.map(|partitions| quote!(.partitions(#partitions)));
    let methods = handles.iter().map(|Entry { message, method }| {
        let turbofish = arguments.as_turbofish();
        quote_spanned! {at(method)=>
            let consumer = ::posta::__private::method::<
                #database, #ident #arguments, #message, _, _, _
            >(consumer, &state, #ident #turbofish::#method);
        }
    });
    let distinct = distinct(handles);
    quote! {
        #distinct
        #[automatically_derived]
        impl #parameters ::core::convert::From<#ident #arguments>
            for ::posta::Consumer<#database> #bounds
        {
            fn from(state: #ident #arguments) -> Self {
                let state = ::std::sync::Arc::new(state);
                let consumer = ::posta::Consumer::named(#name)#partitions;
                #(#methods)*
                consumer
            }
        }
    }
}

/// Assertions that no two messages have one message type: their Rust types differ, so only their
/// constants can tell.
fn distinct(handles: &[Entry]) -> TokenStream {
    let pairs = handles.iter().enumerate().flat_map(|(index, second)| {
        handles[..index]
            .iter()
            .map(move |first| (&first.message, &second.message))
    });
    let assertions = pairs.map(|(first, second)| {
        let words = format!(
            "`{}` and `{}` have the same message type; a consumer has one handler for each",
            written(first),
            written(second)
        );
        quote_spanned! {at(second)=>
            const _: () = {
                use ::posta::__private::NoType as _;
                ::core::assert!(
                    !::posta::__private::is_same_type(
                        <::posta::__private::TypeOf<#first>>::NAME,
                        <::posta::__private::TypeOf<#second>>::NAME,
                    ),
                    #words
                );
            };
        }
    });
    quote!(#(#assertions)*)
}
