use std::fmt;

use sha2::{Digest, Sha256};

use super::{MessageId, OrderingKey};

/// How many slots there are. Fixed for ever: it is part of the routing keys and of the outbox's
/// contract.
pub const SLOTS: u8 = 64;

/// One of 64 fixed slices of all ordering keys: the first byte of the key's SHA-256, modulo 64.
///
/// In the outbox a slot's rows are a lane; on the broker the slot is the routing key's last word. A
/// message without a key takes the slot of its id, written in lower-case hexadecimal with hyphens,
/// which spreads such messages evenly.
///
/// SHA-256 was chosen since every language, PostgreSQL and MySQL have it built in, so that others
/// can compute a slot:
///
/// ```
/// use posta::{OrderingKey, Slot};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// for (key, slot) in [("order-1", 11), ("order-2", 61), ("München", 0), ("a", 10)] {
///     assert_eq!(Slot::of_key(&OrderingKey::new(key)?).number(), slot);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u8);

impl Slot {
    /// The slot of an ordering key.
    #[must_use]
    pub fn of_key(key: &OrderingKey) -> Self {
        Self::of_text(key.as_str())
    }

    /// The slot of a message: of its key, or without one of its id.
    #[must_use]
    pub fn of(key: Option<&OrderingKey>, id: MessageId) -> Self {
        match key {
            Some(key) => Self::of_key(key),
            None => Self::of_text(&id.to_string()),
        }
    }

    /// The slot with this number, if there is one (0 to 63).
    #[must_use]
    pub fn new(number: u8) -> Option<Self> {
        (number < SLOTS).then_some(Self(number))
    }

    /// All slots, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SLOTS).map(Self)
    }

    /// The slot's number, 0 to 63.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    fn of_text(text: &str) -> Self {
        Self(Sha256::digest(text.as_bytes())[0] % SLOTS)
    }
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
