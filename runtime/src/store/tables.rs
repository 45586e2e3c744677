use std::fmt;

/// Longest schema or prefix, in bytes: PostgreSQL cuts identifiers at 63 bytes, and the longest
/// name made from it is `<prefix>_subscription` with an index's suffix.
const NAME_BYTES_MAX: usize = 30;

/// Where Posta's tables are: a schema on PostgreSQL (`posta.outbox`), a prefix on SQLite
/// (`posta_outbox`).
///
/// The only part of any statement that is not bound; hence its narrow alphabet.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Tables {
    name: String,
}

/// A schema or prefix that is no plain identifier.
#[derive(Debug, thiserror::Error)]
#[error(
    "the name of posta's schema or prefix is {name:?}: it must be 1 to {NAME_BYTES_MAX} of a-z, 0-9 and _, \
     the first not a digit"
)]
pub struct TablesError {
    name: String,
}

impl Tables {
    /// Tables in the schema or under the prefix `name`: 1 to 30 of `a-z`, `0-9`, `_`, the first not
    /// a digit.
    ///
    /// # Errors
    /// When the name is anything else.
    pub fn named(name: impl Into<String>) -> Result<Self, TablesError> {
        let name = name.into();
        let plain = name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let starts_well = name.bytes().next().is_some_and(|b| !b.is_ascii_digit());
        if plain && starts_well && name.len() <= NAME_BYTES_MAX {
            Ok(Self { name })
        } else {
            Err(TablesError { name })
        }
    }

    /// The schema's or prefix's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A statement with `{posta}` replaced by the qualifier of this place: `"schema".` or
    /// `prefix_`.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn qualify(&self, sql: &str, qualifier: &str) -> String {
        sql.replace("{posta}", qualifier)
            .replace("{name}", &self.name)
    }
}

impl Default for Tables {
    fn default() -> Self {
        Self {
            name: "posta".to_owned(),
        }
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tables({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_identifiers_are_names() {
        for good in ["posta", "p", "posta_2", "_x"] {
            assert!(Tables::named(good).is_ok(), "{good}");
        }
        for bad in ["", "2x", "a-b", "a\"b", "A", "a.b", "é", &"x".repeat(31)] {
            assert!(Tables::named(bad).is_err(), "{bad}");
        }
    }
}
