use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::store::Origin;

/// The consumer's name, as the column has it.
pub(super) fn consumer(origin: &Origin) -> Option<&str> {
    match origin {
        Origin::Dispatch => None,
        Origin::Consumer(consumer) => Some(consumer),
    }
}

/// The origin, of that column.
pub(super) fn origin(consumer: Option<String>) -> Origin {
    consumer.map_or(Origin::Dispatch, Origin::Consumer)
}

/// Headers as a JSON object that PostgreSQL takes: jsonb holds no NUL, not even an escaped one.
pub(super) fn json(headers: &BTreeMap<String, String>) -> String {
    let headers: BTreeMap<_, _> = headers
        .iter()
        .map(|(name, value)| (without_nul(name), without_nul(value)))
        .collect();
    serde_json::to_string(&headers).expect("a map of texts has a JSON form")
}

/// A part of a message as PostgreSQL's `text` can hold it: U+FFFD in place of each NUL, which a
/// foreign publisher may have sent.
pub(super) fn without_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        text.replace('\0', "\u{fffd}").into()
    } else {
        text.into()
    }
}
