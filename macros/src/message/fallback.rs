//! The code of a message with mistakes: their errors, and implementations that never run, so that
//! the rest of the program is not told that there is no message.

use proc_macro2::TokenStream;
use quote::quote;

use super::ast::Message;
use crate::mistakes::Mistakes;

pub(crate) fn expand(message: &Message<'_>, mistakes: Mistakes) -> TokenStream {
    let errors = mistakes.into_compile_errors();
    let ident = message.ident;
    let (generics, arguments, _) = message.generics.split_for_impl();
    let mut bounds = message.generics.clone();
    if !bounds.params.is_empty() {
        bounds
            .make_where_clause()
            .predicates
            .push(syn::parse_quote! {
                #ident #arguments: ::core::marker::Send + ::core::marker::Sync + 'static
            });
    }
    let bounds = &bounds.where_clause;
    let handled = message.attributes.written.get("handler").map(|_| {
        let mut with_database = message.generics.clone();
        with_database
            .params
            .push(syn::parse_quote!(PostaDatabase: ::posta::Database));
        let (generics, _, _) = with_database.split_for_impl();
        quote! {
            #[automatically_derived]
            impl #generics ::posta::Handled<PostaDatabase> for #ident #arguments #bounds {
                const CONSUMER: &'static str = "";

                fn handler() -> ::posta::Handler<PostaDatabase> {
                    ::core::unreachable!()
                }
            }
        }
    });
    quote! {
        #errors
        #[automatically_derived]
        impl #generics ::posta::Message for #ident #arguments #bounds {
            const TYPE: &'static str = "";
            const VERSION: u32 = 1;
            type Codec = ::posta::__private::NoCodec;

            fn write_key(&self, _key: &mut ::posta::message::KeyWriter) {}
        }
        #handled
    }
}
