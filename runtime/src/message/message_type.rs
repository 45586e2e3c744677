use std::borrow::Cow;
use std::fmt;

use super::error::EnvelopeError;
use super::limits::MESSAGE_TYPE_BYTES_MAX;

/// A message type: a stable dotted string such as `document.signed`.
///
/// One to 252 bytes of printable ASCII without blanks, `*` and `#`: it is the head of an AMQP
/// routing key, where those two are wildcards.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageType(Cow<'static, str>);

impl MessageType {
    /// Takes a type name that is known at compile time (a [`super::Message::TYPE`]).
    pub fn from_static(name: &'static str) -> Result<Self, EnvelopeError> {
        Self::check(name)?;
        Ok(Self(Cow::Borrowed(name)))
    }

    /// Takes a type name that came from a row or from the network.
    pub fn new(name: impl Into<String>) -> Result<Self, EnvelopeError> {
        let name = name.into();
        Self::check(&name)?;
        Ok(Self(Cow::Owned(name)))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn check(name: &str) -> Result<(), EnvelopeError> {
        if name.is_empty() {
            return Err(EnvelopeError::empty("message type"));
        }
        if name.len() > MESSAGE_TYPE_BYTES_MAX {
            return Err(EnvelopeError::too_long(
                "message type",
                name.len(),
                MESSAGE_TYPE_BYTES_MAX,
            ));
        }
        match name.bytes().find(|byte| !is_allowed(*byte)) {
            Some(byte) => Err(EnvelopeError::forbidden("message type", byte)),
            None => Ok(()),
        }
    }
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'*' && byte != b'#'
}

impl std::borrow::Borrow<str> for MessageType {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for MessageType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_the_routing_key_cannot_hold_is_refused() {
        assert!(MessageType::new("a".repeat(MESSAGE_TYPE_BYTES_MAX)).is_ok());
        assert!(MessageType::new("a".repeat(MESSAGE_TYPE_BYTES_MAX + 1)).is_err());
        for bad in ["", "a b", "a.*", "a.#", "a\0b", "é"] {
            assert!(MessageType::new(bad).is_err(), "{bad:?}");
        }
    }
}
