use std::collections::BTreeMap;

use super::error::EnvelopeError;
use super::limits::{HEADER_NAME_BYTES_MAX, HEADERS_BYTES_MAX, HEADERS_MAX};

/// Header that names the conversation which a message belongs to; AMQP's `correlation_id` property.
pub const CORRELATION_ID: &str = "correlation-id";
/// Header that names the message in whose handler a message was enqueued.
pub const CAUSATION_ID: &str = "causation-id";
/// W3C trace context of the enqueuing span.
pub const TRACEPARENT: &str = "traceparent";
/// W3C trace state of the enqueuing span.
pub const TRACESTATE: &str = "tracestate";

/// An envelope's headers: names and text values, sorted by name.
///
/// Bounded in number ([`HEADERS_MAX`]) and size ([`HEADERS_BYTES_MAX`]); names are printable ASCII,
/// values are UTF-8 without NUL.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Headers(BTreeMap<String, String>);

impl Headers {
    /// Sets a header; an earlier value of the same name is replaced.
    ///
    /// # Errors
    /// When the name or the value is not allowed, or the whole would pass a limit; the headers are
    /// then unchanged.
    pub fn set(
        &mut self,
        name: impl Into<String>,
        value: impl Into<String>,
    ) -> Result<(), EnvelopeError> {
        let (name, value) = (name.into(), value.into());
        check_name(&name)?;
        if value.contains('\0') {
            return Err(EnvelopeError::forbidden("header value", 0));
        }
        let replaced = self.0.get(&name).map_or(0, |old| name.len() + old.len());
        let bytes = self.bytes() - replaced + name.len() + value.len();
        if bytes > HEADERS_BYTES_MAX {
            return Err(EnvelopeError::too_long("headers", bytes, HEADERS_BYTES_MAX));
        }
        if replaced == 0 && self.0.len() == HEADERS_MAX {
            return Err(EnvelopeError::too_many(
                "headers",
                HEADERS_MAX + 1,
                HEADERS_MAX,
            ));
        }
        self.0.insert(name, value);
        Ok(())
    }

    /// The value of a header.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All headers, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn bytes(&self) -> usize {
        self.0
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum()
    }
}

fn check_name(name: &str) -> Result<(), EnvelopeError> {
    if name.is_empty() {
        return Err(EnvelopeError::empty("header name"));
    }
    if name.len() > HEADER_NAME_BYTES_MAX {
        return Err(EnvelopeError::too_long(
            "header name",
            name.len(),
            HEADER_NAME_BYTES_MAX,
        ));
    }
    match name.bytes().find(|byte| !byte.is_ascii_graphic()) {
        Some(byte) => Err(EnvelopeError::forbidden("header name", byte)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_past_a_limit_leaves_the_headers_unchanged() {
        let mut headers = Headers::default();
        headers.set("a", "x".repeat(HEADERS_BYTES_MAX - 1)).unwrap();
        assert!(headers.set("b", "").is_err());
        headers.set("a", "short").unwrap();
        for number in 1..HEADERS_MAX {
            headers.set(format!("h{number}"), "").unwrap();
        }
        assert!(headers.set("one-more", "").is_err());
        assert!(headers.set("nul", "a\0b").is_err());
        assert_eq!(headers.iter().count(), HEADERS_MAX);
    }
}
