//! What can be a message.

use posta::Message;
use serde::{Deserialize, Serialize};

use super::key_of;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", version = 2)]
struct WithFields {
    document_id: u64,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "tick")]
struct Unit;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "pair")]
struct Tuple(u8, String);

#[derive(Serialize, Deserialize, Message)]
#[message(type = "decision")]
enum Either {
    Accepted { by: String },
    Refused(u8),
    Open,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "several.lists")]
#[message(version = 2147483647)]
struct SeveralLists {}

#[rustfmt::skip]
#[derive(Serialize, Deserialize, Message)]
#[message(version = 3, type = "!\"$%&'()+,-./:;<=>?@[\\]^_`{|}~",)]
struct OddCharactersAndLastComma;

macro_rules! message {
    ($name:ident, $type:literal, $version:literal, $key:ident: $of:ty) => {
        #[derive(Serialize, Deserialize, Message)]
        #[message(type = $type, version = $version, key = $key)]
        struct $name {
            $key: $of,
        }
    };
}

message!(FromAMacro, "from.a.macro", 4, document_id: u64);

mod elsewhere {
    // Nothing is in scope but the derive's own name.
    #[derive(::serde::Serialize, ::serde::Deserialize, ::posta::Message)]
    #[message(type = "elsewhere", key = id)]
    pub(crate) struct WithoutImports {
        pub(crate) id: u8,
    }
}

#[test]
fn type_and_version_are_as_written() {
    assert_eq!(
        (WithFields::TYPE, WithFields::VERSION),
        ("document.signed", 2)
    );
    assert_eq!((Tuple::TYPE, Either::TYPE), ("pair", "decision"));
    assert_eq!(SeveralLists::VERSION, i32::MAX.unsigned_abs());
    assert_eq!(OddCharactersAndLastComma::TYPE.len(), 30);
    assert_eq!((FromAMacro::TYPE, FromAMacro::VERSION), ("from.a.macro", 4));
}

#[test]
fn a_version_that_is_not_written_is_1() {
    assert_eq!(Unit::VERSION, 1);
}

#[test]
fn a_message_without_a_key_writes_none() {
    assert_eq!(key_of(&WithFields { document_id: 1 }), None);
    assert_eq!(key_of(&Unit), None);
    assert_eq!(key_of(&Tuple(1, "a".to_owned())), None);
    for decision in [
        Either::Accepted { by: "a".to_owned() },
        Either::Refused(1),
        Either::Open,
    ] {
        assert_eq!(key_of(&decision), None);
    }
}

#[test]
fn the_derive_needs_no_imports_and_works_in_macros() {
    assert_eq!(
        key_of(&elsewhere::WithoutImports { id: 7 }).as_deref(),
        Some("7")
    );
    assert_eq!(key_of(&FromAMacro { document_id: 7 }).as_deref(), Some("7"));
}
