//! Answers for people, at most 100 columns wide, and for programs.

pub(crate) mod diff;
pub(crate) mod fields;
pub(crate) mod json;
pub(crate) mod payload;
pub(crate) mod table;
pub(crate) mod text;

use posta::store::Origin;

/// The widest line, in columns of a terminal.
pub(crate) const COLUMNS: usize = 100;

/// An origin as people read it: a consumer's name, or `(dispatch)`, which is no consumer's.
pub(crate) fn origin(origin: &Origin) -> String {
    match origin {
        Origin::Dispatch => "(dispatch)".to_owned(),
        Origin::Consumer(name) => name.clone(),
    }
}

/// What is not there, as people read it.
pub(crate) fn or_dash(text: Option<&str>) -> String {
    text.unwrap_or("-").to_owned()
}
