//! What the services say to each other: an order, whose handler sends an invoice, whose handler sends
//! a receipt; and notes, without a key, of which some are scheduled.

use std::hash::{DefaultHasher, Hasher as _};

use posta::Message;
use rand::rngs::StdRng;
use rand::{Rng as _, RngExt as _};
use serde::{Deserialize, Serialize};

/// Consumer of orders; sends an invoice for each.
pub(super) const LEDGER: &str = "ledger";
/// Consumer of invoices; sends a receipt for each.
pub(super) const BILLING: &str = "billing";
/// Consumer of everything.
pub(super) const AUDIT: &str = "audit";

/// What becomes of a message at the consumer that answers it; the other one always succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Fate {
    /// It is handled at the first try.
    Fine,
    /// So many tries fail.
    Fails(u32),
    /// It is dead at its first try, until it is mended.
    Dies,
}

impl Fate {
    fn draw(rng: &mut StdRng) -> Self {
        match rng.random_range(0..1000) {
            0..30 => Self::Fails(rng.random_range(1..=3)),
            30..42 => Self::Dies,
            _ => Self::Fine,
        }
    }

    /// As the tables have it: how many tries fail; below zero, all do.
    pub(super) fn failures(self) -> i64 {
        match self {
            Self::Fine => 0,
            Self::Fails(times) => i64::from(times),
            Self::Dies => -1,
        }
    }
}

macro_rules! keyed {
    ($($(#[$doc:meta])* $name:ident $type:literal),+) => {
        $($(#[$doc])*
        #[derive(Clone, Debug, Serialize, Deserialize, Message)]
        #[message(type = $type, version = 1, key = key)]
        pub(super) struct $name {
            pub(super) key: String,
            /// Which of its key's it is, from 1.
            pub(super) number: i64,
            pub(super) fate: Fate,
            pub(super) filler: String,
        }

        impl $name {
            pub(super) fn draw(key: String, number: i64, rng: &mut StdRng) -> Self {
                let (fate, filler) = (Fate::draw(rng), filler(rng));
                Self { key, number, fate, filler }
            }
        })+
    };
}

keyed!(
    /// What producers send.
    Order "faults.order",
    /// What [`LEDGER`] answers.
    Invoice "faults.invoice",
    /// What [`BILLING`] answers.
    Receipt "faults.receipt"
);

/// A message without a key.
#[derive(Clone, Debug, Serialize, Deserialize, Message)]
#[message(type = "faults.note", version = 1)]
pub(super) struct Note {
    pub(super) filler: String,
}

impl Note {
    pub(super) fn draw(rng: &mut StdRng) -> Self {
        let filler = filler(rng);
        Self { filler }
    }
}

/// Up to a few hundred characters of all sorts.
fn filler(rng: &mut StdRng) -> String {
    const CHARACTERS: [char; 12] = [
        'a', 'Z', '0', ' ', '"', '\\', '\n', '\'', 'ß', '€', '𝄞', '\u{7f}',
    ];
    let length = rng.random_range(0..120);
    let character = |_| CHARACTERS[rng.next_u32() as usize % CHARACTERS.len()];
    (0..length).map(character).collect()
}

/// What of a payload is compared (G8).
pub(super) fn hash(payload: &[u8]) -> i64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(payload);
    hasher.finish().cast_signed()
}
