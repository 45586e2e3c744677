use std::error::Error;
use std::fmt;

/// Why an envelope could not be made. Found before any SQL, so the caller's transaction stays
/// usable.
#[derive(Debug)]
pub struct EnvelopeError {
    field: &'static str,
    kind: EnvelopeErrorKind,
}

/// What was wrong with a field of an envelope.
#[derive(Debug)]
#[non_exhaustive]
pub enum EnvelopeErrorKind {
    /// It is empty and must not be.
    Empty,
    /// It has more bytes than allowed.
    TooLong {
        /// Its size in bytes.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// There are more of them than allowed.
    TooMany {
        /// How many there are.
        count: usize,
        /// The limit.
        count_max: usize,
    },
    /// It holds a byte that is not allowed there.
    Forbidden {
        /// The first such byte.
        byte: u8,
    },
    /// The codec could not encode the message.
    Encode(Box<dyn Error + Send + Sync>),
}

impl EnvelopeError {
    pub(crate) fn empty(field: &'static str) -> Self {
        Self {
            field,
            kind: EnvelopeErrorKind::Empty,
        }
    }

    pub(crate) fn too_long(field: &'static str, bytes: usize, bytes_max: usize) -> Self {
        Self {
            field,
            kind: EnvelopeErrorKind::TooLong { bytes, bytes_max },
        }
    }

    pub(crate) fn too_many(field: &'static str, count: usize, count_max: usize) -> Self {
        Self {
            field,
            kind: EnvelopeErrorKind::TooMany { count, count_max },
        }
    }

    pub(crate) fn forbidden(field: &'static str, byte: u8) -> Self {
        Self {
            field,
            kind: EnvelopeErrorKind::Forbidden { byte },
        }
    }

    /// The codec's error, as the payload's.
    pub fn encode(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            field: "payload",
            kind: EnvelopeErrorKind::Encode(source.into()),
        }
    }

    /// The field that was refused, in the words of the documentation.
    #[must_use]
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// What was wrong with it.
    #[must_use]
    pub fn kind(&self) -> &EnvelopeErrorKind {
        &self.kind
    }
}

impl fmt::Display for EnvelopeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = self.field;
        match &self.kind {
            EnvelopeErrorKind::Empty => write!(f, "{field} is empty"),
            EnvelopeErrorKind::TooLong { bytes, bytes_max } => {
                write!(
                    f,
                    "{field} has {bytes} bytes, more than the {bytes_max} allowed"
                )
            }
            EnvelopeErrorKind::TooMany { count, count_max } => {
                write!(f, "{field}: {count} are more than the {count_max} allowed")
            }
            EnvelopeErrorKind::Forbidden { byte } => {
                write!(
                    f,
                    "{field} holds the byte 0x{byte:02x}, which is not allowed there"
                )
            }
            EnvelopeErrorKind::Encode(_) => write!(f, "{field} could not be encoded"),
        }
    }
}

impl Error for EnvelopeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            EnvelopeErrorKind::Encode(source) => Some(source.as_ref()),
            _ => None,
        }
    }
}

/// Why a payload could not be decoded into its message. Permanent: the same bytes fail again.
#[derive(Debug)]
pub struct DecodeError {
    source: Box<dyn Error + Send + Sync>,
}

impl DecodeError {
    /// Wraps a codec's error.
    pub fn new(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            source: source.into(),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("payload could not be decoded")
    }
}

impl Error for DecodeError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(self.source.as_ref())
    }
}
