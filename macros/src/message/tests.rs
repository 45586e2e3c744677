use quote::quote;
use syn::{DeriveInput, parse_quote};

use super::{ast, derive, valid};
use crate::mistakes::Mistakes;

/// The words of all mistakes in a derive.
fn mistakes_of(input: &DeriveInput) -> Vec<String> {
    let mut mistakes = Mistakes::default();
    let ast = ast::Message::new(input, &mut mistakes);
    valid::Message::check(&ast, &mut mistakes);
    mistakes.words()
}

#[test]
fn a_contract_becomes_one_implementation() {
    let code = derive(&parse_quote! {
        #[message(type = "document.signed", version = 2, key = (tenant, document_id))]
        pub struct DocumentSigned { tenant: String, document_id: u64 }
    });
    let expected = quote! {
        #[automatically_derived]
        impl ::posta::Message for DocumentSigned {
            const TYPE: &'static str = "document.signed";
            const VERSION: u32 = 2u32;
            type Codec = ::posta::Json;

            fn write_key(&self, key: &mut ::posta::message::KeyWriter) {
                ::posta::__private::key_field(key, &self.tenant);
                ::posta::__private::key_field(key, &self.document_id);
                let _ = key;
            }
        }
    };
    assert_eq!(code.to_string(), expected.to_string());
}

#[test]
fn a_handler_becomes_a_second_implementation() {
    let code = derive(&parse_quote! {
        #[message(type = "a", codec = Cbor, handler = handlers::on_a, consumer = "c")]
        struct A;
    });
    let expected = quote! {
        #[automatically_derived]
        impl ::posta::Message for A {
            const TYPE: &'static str = "a";
            const VERSION: u32 = 1u32;
            type Codec = Cbor;

            fn write_key(&self, key: &mut ::posta::message::KeyWriter) {
                let _ = key;
            }
        }
        #[automatically_derived]
        impl ::posta::Handled<Db> for A {
            const CONSUMER: &'static str = "c";

            fn handler() -> ::posta::Handler<Db> {
                ::posta::__private::function::<Db, Self, _, _, _>(handlers::on_a)
            }
        }
    };
    assert_eq!(code.to_string(), expected.to_string());
}

#[test]
fn a_mistake_leaves_implementations_behind() {
    let code = derive(&parse_quote! {
        #[message(type = "", handler = on_a, consumer = "c")]
        struct A;
    })
    .to_string();
    for part in [
        "compile_error !",
        "impl :: posta :: Message for A",
        ":: posta :: Handled <",
    ] {
        assert!(code.contains(part), "{part}: {code}");
    }
}

#[test]
fn several_lists_are_one() {
    let input = parse_quote! {
        #[message(type = "a")]
        #[serde(rename_all = "kebab-case")]
        #[message(version = 3,)]
        #[message()]
        struct A;
    };
    assert!(mistakes_of(&input).is_empty());
}

#[test]
fn all_mistakes_are_found_in_one_go() {
    let words = mistakes_of(&parse_quote! {
        #[message(version = 0, keyy = a, key = (b, c d), version = 1, type 5, handler = "x")]
        struct A { a: u32 }
    });
    let expected = [
        "unknown attribute `keyy`; did you mean `key`?",
        "expected a comma",
        "duplicate attribute `version`",
        "`type` is written `type = \"document.signed\"`",
        "`handler` is written `handler = notify`",
        "version 0: a schema version is 1 to 2147483647",
        "`b` is not a field of `A`; its only field is `a`",
        "`c` is not a field of `A`; its only field is `a`",
        "a `handler` belongs to a consumer: add its name, as in `consumer = \"notifications\"`",
    ];
    assert_eq!(words, expected);
}

#[test]
fn a_comma_inside_a_path_ends_no_attribute() {
    let words = mistakes_of(&parse_quote! {
        #[message(type = "a", codec = Map<A, B>, codec = Map<fn(A) -> B, B>, kodec = Map<A, B>)]
        struct A;
    });
    assert_eq!(
        words,
        [
            "duplicate attribute `codec`",
            "unknown attribute `kodec`; did you mean `codec`?"
        ]
    );
}

#[test]
fn a_keyword_can_be_a_key() {
    let input = parse_quote! {
        #[message(type = "a", key = (type, r#match, plain))]
        struct A { r#type: u32, r#match: u32, plain: u32 }
    };
    assert!(mistakes_of(&input).is_empty());
    let code = derive(&input).to_string();
    assert!(
        code.contains("& self . r#type") && code.contains("& self . r#match"),
        "{code}"
    );
}

#[test]
fn a_generic_message_is_refused() {
    let words = |input: &DeriveInput| mistakes_of(input).join("; ");
    assert!(
        words(&parse_quote!(
            #[message(type = "a")]
            struct A<T>(T);
        ))
        .contains("not generic")
    );
    assert!(
        words(&parse_quote!(
            #[message(type = "a")]
            struct A<'a>(&'a u8);
        ))
        .contains("owns")
    );
    assert!(words(&parse_quote!(#[message(type = "a")] union A { a: u8 })).contains("a union"));
}
