use std::collections::{BTreeMap, BTreeSet, HashSet};

use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{Delivery, WebhookReceived};

/// A running hash over delivery ids: equal only if the same ids were added in the same order, none
/// left out, none twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chain([u8; 32]);

impl Chain {
    /// The chain of nothing.
    pub const EMPTY: Self = Self([0; 32]);

    /// The chain with one more id.
    #[must_use]
    pub fn then(self, id: Uuid) -> Self {
        let mut hash = Sha256::new();
        hash.update(self.0);
        hash.update(id.as_bytes());
        Self(hash.finalize().into())
    }

    /// The chain's bytes, to be stored.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// A chain that was stored; `None` when the bytes are none.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

/// What the statistics say of one repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tally {
    /// How many deliveries told of it.
    pub deliveries: i64,
    /// The last one's event.
    pub last_event: String,
    /// The chain over their ids, in order.
    pub chain: Chain,
}

impl Tally {
    /// The tally after one more delivery, and of the first one when there was none.
    #[must_use]
    pub fn add(before: Option<Self>, id: Uuid, event: &str) -> Self {
        let (deliveries, chain) = before.map_or((0, Chain::EMPTY), |before| {
            (before.deliveries, before.chain)
        });
        Self {
            deliveries: deliveries + 1,
            last_event: event.to_owned(),
            chain: chain.then(id),
        }
    }
}

/// The statistics that these deliveries must lead to, sent in this order, each counted once however
/// often it is in the list.
///
/// Deliveries without a repository are not in it (they have no order among each other), nor are
/// those of ignored events.
///
/// # Errors
/// When a body is none of GitHub's.
pub fn expected(
    deliveries: &[Delivery],
    ignored: &BTreeSet<String>,
) -> Result<BTreeMap<String, Tally>, serde_json::Error> {
    let mut tallies = BTreeMap::new();
    let mut seen = HashSet::new();
    let counted = deliveries
        .iter()
        .filter(|delivery| !ignored.contains(&delivery.event));
    for delivery in counted.filter(|delivery| seen.insert(delivery.id)) {
        let message = WebhookReceived::of(delivery.body.clone())?;
        if let Some(repository) = message.repository {
            let before = tallies.remove(&repository);
            tallies.insert(repository, Tally::add(before, delivery.id, &delivery.event));
        }
    }
    Ok(tallies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(ids: &[u128]) -> Chain {
        ids.iter()
            .fold(Chain::EMPTY, |chain, id| chain.then(Uuid::from_u128(*id)))
    }

    #[test]
    fn a_chain_tells_loss_doubling_and_disorder() {
        let right = chain(&[1, 2, 3]);
        for wrong in [&[1, 2][..], &[1, 3], &[1, 2, 2, 3], &[1, 3, 2], &[]] {
            assert_ne!(chain(wrong), right, "{wrong:?}");
        }
        assert_eq!(Chain::from_bytes(right.as_bytes()), Some(right));
        assert_eq!(Chain::from_bytes(b"short"), None);
    }

    #[test]
    fn a_repetition_counts_once() {
        let delivery = |id: u128, event: &str, repository: &str| Delivery {
            id: Uuid::from_u128(id),
            event: event.to_owned(),
            body: format!(r#"{{"repository":{{"full_name":"{repository}"}}}}"#).into(),
        };
        let sent = [
            delivery(1, "push", "o/a"),
            delivery(2, "issues", "o/b"),
            delivery(3, "star", "o/a"),
            delivery(1, "push", "o/a"),
            delivery(4, "ping", "o/a"),
        ];
        let tallies = expected(&sent, &BTreeSet::from(["ping".to_owned()])).unwrap();
        assert_eq!(tallies["o/a"].deliveries, 2);
        assert_eq!(tallies["o/a"].last_event, "star");
        assert_eq!(tallies["o/a"].chain, chain(&[1, 3]));
        assert_eq!(tallies["o/b"].chain, chain(&[2]));
    }
}
