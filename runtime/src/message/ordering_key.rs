use std::fmt::{self, Display, Write as _};

use super::error::EnvelopeError;
use super::limits::ORDERING_KEY_BYTES_MAX;

/// Messages with the same ordering key take effect in the order in which they were enqueued (G4).
///
/// One to 255 bytes of UTF-8 without NUL (PostgreSQL's `text` cannot hold one).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OrderingKey(String);

impl OrderingKey {
    /// Takes a key as it is.
    pub fn new(key: impl Into<String>) -> Result<Self, EnvelopeError> {
        let key = key.into();
        if key.is_empty() {
            return Err(EnvelopeError::empty("ordering key"));
        }
        if key.len() > ORDERING_KEY_BYTES_MAX {
            return Err(EnvelopeError::too_long(
                "ordering key",
                key.len(),
                ORDERING_KEY_BYTES_MAX,
            ));
        }
        if key.contains('\0') {
            return Err(EnvelopeError::forbidden("ordering key", 0));
        }
        Ok(Self(key))
    }

    /// The key as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Display for OrderingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for OrderingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Builds an ordering key from a message's fields.
///
/// One field is written as it displays itself. Several are joined by `/`; in each of them `~`
/// becomes `~0` and `/` becomes `~1` (as in a JSON pointer), so that two different tuples never
/// make one key.
#[derive(Debug, Default)]
pub struct KeyWriter {
    fields: Vec<String>,
}

impl KeyWriter {
    /// Adds a field.
    pub fn field(&mut self, field: &(impl Display + ?Sized)) {
        let mut text = String::new();
        // Writing to a String fails only if the field's own Display does; its text so far is then
        // the field.
        let _ = write!(text, "{field}");
        self.fields.push(text);
    }

    /// The key of the fields so far: `None` if there was none.
    pub fn finish(self) -> Result<Option<OrderingKey>, EnvelopeError> {
        let mut fields = self.fields;
        match fields.len() {
            0 => Ok(None),
            1 => OrderingKey::new(fields.remove(0)).map(Some),
            _ => {
                let escaped: Vec<String> = fields
                    .iter()
                    .map(|f| f.replace('~', "~0").replace('/', "~1"))
                    .collect();
                OrderingKey::new(escaped.join("/")).map(Some)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key_of(fields: &[&str]) -> String {
        let mut writer = KeyWriter::default();
        fields.iter().for_each(|field| writer.field(*field));
        writer.finish().unwrap().unwrap().to_string()
    }

    #[test]
    fn different_tuples_never_make_one_key() {
        assert_eq!(key_of(&["a", "b"]), "a/b");
        assert_ne!(key_of(&["a/b", "c"]), key_of(&["a", "b/c"]));
        assert_ne!(key_of(&["a~1b", "c"]), key_of(&["a/b", "c"]));
    }

    #[test]
    fn a_single_field_is_written_as_it_is() {
        assert_eq!(key_of(&["a/b~c"]), "a/b~c");
    }

    #[test]
    fn nul_empty_and_over_long_keys_are_refused() {
        assert!(OrderingKey::new("a\0b").is_err());
        assert!(OrderingKey::new("").is_err());
        assert!(OrderingKey::new("é".repeat(128)).is_err());
        assert!(OrderingKey::new("é".repeat(127)).is_ok());
    }
}
