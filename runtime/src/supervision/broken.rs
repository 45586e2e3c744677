//! Deliberate mistakes, to prove that the tests' checkers see them. Compiled in by the feature
//! `crash-points` only; without it nothing is left of them.
//!
//! `POSTA_BROKEN=inbox` has this process make the mistake of that name, from its start to its end.

/// A mistake that a runtime of this kind could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mistake {
    /// `acknowledge`: deliveries are acknowledged before their transaction is committed.
    Acknowledge,
    /// `confirm`: rows are settled as dispatched before the broker has confirmed them.
    Confirm,
    /// `inbox`: every delivery is taken for a new one.
    Inbox,
    /// `hold`: a failing message's key is not on hold, its successors are handled.
    Hold,
}

/// Whether this process is to make a mistake.
#[cfg(feature = "crash-points")]
pub(crate) fn makes(mistake: Mistake) -> bool {
    use std::sync::OnceLock;
    static MADE: OnceLock<Option<Mistake>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let name = std::env::var("POSTA_BROKEN").ok()?;
        Some(match name.as_str() {
            "acknowledge" => Mistake::Acknowledge,
            "confirm" => Mistake::Confirm,
            "inbox" => Mistake::Inbox,
            "hold" => Mistake::Hold,
            other => panic!("POSTA_BROKEN: there is no mistake {other:?}"),
        })
    });
    *made == Some(mistake)
}

/// Whether this process is to make a mistake: never.
#[cfg(not(feature = "crash-points"))]
pub(crate) const fn makes(_mistake: Mistake) -> bool {
    false
}
