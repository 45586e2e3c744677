use quote::quote;
use syn::{DeriveInput, parse_quote};

use super::{ast, derive, valid};
use crate::mistakes::Mistakes;

/// The words of all mistakes in a derive.
fn mistakes_of(input: &DeriveInput) -> Vec<String> {
    let mut mistakes = Mistakes::default();
    let ast = ast::Consumer::new(input, &mut mistakes);
    valid::Consumer::check(&ast, &mut mistakes);
    mistakes.words()
}

#[test]
fn a_consumer_becomes_a_conversion() {
    let code = derive(&parse_quote! {
        #[consumer(name = "notifications", partitions = 4, handles(A => on_a, other::B => on_b))]
        struct Notifications { templates: Templates }
    });
    let expected = quote! {
        const _: () = {
            use ::posta::__private::NoType as _;
            ::core::assert!(
                !::posta::__private::is_same_type(
                    <::posta::__private::TypeOf<A>>::NAME,
                    <::posta::__private::TypeOf<other::B>>::NAME,
                ),
                "`A` and `other::B` have the same message type; a consumer has one handler for each"
            );
        };
        #[automatically_derived]
        impl ::core::convert::From<Notifications> for ::posta::Consumer<Db> {
            fn from(state: Notifications) -> Self {
                let state = ::std::sync::Arc::new(state);
                let consumer = ::posta::Consumer::named("notifications").partitions(4u8);
                let consumer = ::posta::__private::method::<Db, Notifications, A, _, _, _>(
                    consumer, &state, Notifications::on_a
                );
                let consumer = ::posta::__private::method::<Db, Notifications, other::B, _, _, _>(
                    consumer, &state, Notifications::on_b
                );
                consumer
            }
        }
    };
    assert_eq!(code.to_string(), expected.to_string());
}

#[test]
fn a_generic_consumer_keeps_its_parameters() {
    let code = derive(&parse_quote! {
        #[consumer(name = "notifications", handles(A => on_a), database = posta::Sqlite)]
        struct Notifications<T: Templates = Plain, const N: usize = 1> { templates: [T; N] }
    })
    .to_string();
    for part in [
        "impl < T : Templates , const N : usize >",
        "for :: posta :: Consumer < posta :: Sqlite >",
        "Notifications :: < T , N > :: on_a",
        "Notifications < T , N > : :: core :: marker :: Send",
    ] {
        assert!(code.contains(part), "{part}: {code}");
    }
}

#[test]
fn all_mistakes_are_found_in_one_go() {
    let words = mistakes_of(&parse_quote! {
        #[consumer(partitions = 0, handles(A => on_a, B, A => on_b), partitons = 4, name = "a b")]
        struct Notifications<'a>(&'a str);
    });
    let expected = [
        "a handler is written `DocumentSigned => on_signed`: message and method",
        "unknown attribute `partitons`; did you mean `partitions`?",
        "a consumer owns its state, since it lives as long as the program: it has no lifetimes",
        "the consumer's name holds ' '; it is made of `a-z`, `A-Z`, `0-9`, `.`, `_` and `-`",
        "a second handler of `A`; a consumer has one handler for each message",
        "0 partitions: a consumer has 1 to 64, the number of slots",
    ];
    assert_eq!(words, expected);
}

#[test]
fn a_mistake_leaves_the_conversion_behind() {
    let code = derive(&parse_quote! {
        #[consumer(handles())]
        struct Notifications;
    })
    .to_string();
    assert!(code.contains("compile_error !"), "{code}");
    assert!(
        code.contains("From < Notifications > for :: posta :: Consumer <"),
        "{code}"
    );
}
