//! Derive macros of posta; use them through `posta`, which names them `posta::Message` and
//! `posta::Consumer`.
//!
//! Each derive is a pipeline of five nouns, one file each in its folder: the attributes as written
//! (`attr`), the item with them (`ast`), what is left when every rule has been checked (`valid`),
//! the code of it (`expand`), or, if there was any mistake, the code that keeps the compiler from
//! complaining about more than that (`fallback`).

mod attribute;
mod consumer;
mod did_you_mean;
mod message;
mod mistakes;
mod names;
mod tokens;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

#[proc_macro_derive(Message, attributes(message))]
#[doc = include_str!("message/message.md")]
pub fn derive_message(input: TokenStream) -> TokenStream {
    message::derive(&parse_macro_input!(input as DeriveInput)).into()
}

#[proc_macro_derive(Consumer, attributes(consumer))]
#[doc = include_str!("consumer/consumer.md")]
pub fn derive_consumer(input: TokenStream) -> TokenStream {
    consumer::derive(&parse_macro_input!(input as DeriveInput)).into()
}
