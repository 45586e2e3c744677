//! What can be an ordering key.

use posta::Message;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::key_of;

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", key = document_id)]
struct OneField {
    document_id: Uuid,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", key = (tenant, document_id))]
struct TwoFields {
    document_id: u64,
    tenant: String,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", key = (tenant,))]
struct OneFieldInParentheses {
    tenant: String,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", key = 1)]
struct IndexOfATuple(u8, char);

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", key = (1, 0))]
struct IndicesOfATuple(u8, char);

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", key = (type, r#match, key))]
struct Keywords {
    r#type: u8,
    r#match: u8,
    key: u8,
}

#[derive(Serialize, Deserialize, Message)]
#[message(type = "document.signed", key = tenant)]
struct Nested {
    tenant: Box<Tenant>,
}

#[derive(Serialize, Deserialize)]
struct Tenant(String);

impl std::fmt::Display for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "tenant {}", self.0)
    }
}

#[test]
fn one_field_is_written_as_it_displays_itself() {
    let key = key_of(&OneField {
        document_id: Uuid::nil(),
    });
    assert_eq!(key.as_deref(), Some("00000000-0000-0000-0000-000000000000"));
    let key = key_of(&OneFieldInParentheses {
        tenant: "a/b".to_owned(),
    });
    assert_eq!(key.as_deref(), Some("a/b"));
    let key = key_of(&Nested {
        tenant: Box::new(Tenant("a".to_owned())),
    });
    assert_eq!(key.as_deref(), Some("tenant a"));
}

#[test]
fn several_fields_are_in_the_order_of_the_key_not_of_the_struct() {
    let key = key_of(&TwoFields {
        document_id: 7,
        tenant: "a/b".to_owned(),
    });
    assert_eq!(key.as_deref(), Some("a~1b/7"));
    assert_eq!(key_of(&IndicesOfATuple(1, 'a')).as_deref(), Some("a/1"));
}

#[test]
fn a_tuple_structs_field_is_named_by_its_index() {
    assert_eq!(key_of(&IndexOfATuple(1, 'a')).as_deref(), Some("a"));
}

#[test]
fn a_field_may_be_called_like_a_keyword_or_like_the_generated_argument() {
    assert_eq!(
        key_of(&Keywords {
            r#type: 1,
            r#match: 2,
            key: 3
        })
        .as_deref(),
        Some("1/2/3")
    );
}
