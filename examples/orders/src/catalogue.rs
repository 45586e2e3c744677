use uuid::Uuid;

/// What can be ordered, and what it costs.
pub(crate) const ITEMS: [(&str, i64); 5] = [
    ("stamp", 95),
    ("postcard", 150),
    ("envelope", 40),
    ("parcel", 899),
    ("seal", 1250),
];

/// What one customer wants, and how often that changes.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) order_id: Uuid,
    pub(crate) item: &'static str,
    pub(crate) unit_cents: i64,
    pub(crate) quantity: i64,
    /// How often the quantity is changed.
    pub(crate) changes: u64,
    /// Whether the order is cancelled in the end.
    pub(crate) cancelled: bool,
}

impl Wish {
    /// The quantity that a change asks for; rounds count from 0.
    pub(crate) fn quantity_after(&self, round: u64) -> i64 {
        1 + (self.quantity + round as i64) % 5
    }
}

/// Wishes of so many customers: each changes up to `changes` times, and every tenth order is
/// cancelled.
pub(crate) fn wishes(count: u64, changes: u64) -> Vec<Wish> {
    (0..count)
        .map(|number| {
            let (item, unit_cents) = ITEMS[(number % ITEMS.len() as u64) as usize];
            Wish {
                order_id: Uuid::now_v7(),
                item,
                unit_cents,
                quantity: 1 + (number % 3) as i64,
                changes: number % (changes + 1),
                cancelled: number % 10 == 9,
            }
        })
        .collect()
}
