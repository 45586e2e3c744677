//! The code of a message.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::Member;

use super::valid::{Handled, Message};
use crate::tokens::at;

pub(crate) fn expand(message: &Message<'_>) -> TokenStream {
    let Message {
        ident,
        message_type,
        version,
        ..
    } = message;
    let codec = codec(message);
    let key = message.key.iter().map(key_field);
    let retry = message.retry.expand();
    let handled = message
        .handled
        .as_ref()
        .map(|handled| impl_handled(message, handled));
    quote! {
        #[automatically_derived]
        impl ::posta::Message for #ident {
            const TYPE: &'static str = #message_type;
            const VERSION: u32 = #version;
            #retry
            type Codec = #codec;

            fn write_key(&self, key: &mut ::posta::message::KeyWriter) {
                #(#key)*
                let _ = key;
            }
        }
        #handled
    }
}

/// The codec as written; the default one stands on the type's name, which is the guilty token if
/// the type has no encoding.
fn codec(message: &Message<'_>) -> TokenStream {
    match message.codec {
        Some(codec) => quote!(#codec),
        None => quote_spanned!(at(message.ident)=> ::posta::Json),
    }
}

fn key_field(field: &Member) -> TokenStream {
    quote_spanned! {at(field)=>
        ::posta::__private::key_field(key, &self.#field);
    }
}

fn impl_handled(message: &Message<'_>, handled: &Handled<'_>) -> TokenStream {
    let Message { ident, .. } = message;
    let Handled {
        token,
        handler,
        consumer,
        database,
    } = handled;
    let database = match database {
        Some(database) => quote!(#database),
        None => quote_spanned!(at(token)=> Db),
    };
    let function = quote_spanned! {at(handler)=>
        ::posta::__private::function::<#database, Self, _, _, _>(#handler)
    };
    quote! {
        #[automatically_derived]
        impl ::posta::Handled<#database> for #ident {
            const CONSUMER: &'static str = #consumer;

            fn handler() -> ::posta::Handler<#database> {
                #function
            }
        }
    }
}
