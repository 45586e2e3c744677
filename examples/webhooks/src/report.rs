use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::{Delivery, Tally};

/// What the tables hold, compared with what was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Deliveries that were sent, each counted once.
    pub sent: u64,
    /// How often deliveries were sent beyond once.
    pub repeated: u64,
    /// Deliveries that were taken in.
    pub stored: u64,
    /// Bodies in the archive.
    pub archived: u64,
    /// Deliveries that were sent and are not in the archive.
    pub lost: u64,
    /// Bodies that are in the archive once more than once.
    pub doubled: u64,
    /// Bodies in the archive that differ from what was sent, or were never sent.
    pub altered: u64,
    /// Repositories that the statistics must know.
    pub repositories: u64,
    /// Repositories of which the statistics are not what they must be: something is missing,
    /// doubled or out of order.
    pub wrong: Vec<String>,
}

impl Report {
    /// Compares.
    pub(crate) fn compare(
        sent: &[Delivery],
        stored: i64,
        bodies: &[(String, Vec<u8>)],
        expected: &BTreeMap<String, Tally>,
        tallies: &BTreeMap<String, Tally>,
    ) -> Self {
        let unique: HashMap<String, &Delivery> = sent
            .iter()
            .map(|delivery| (delivery.id.to_string(), delivery))
            .collect();
        let mut copies: HashMap<&str, u64> = HashMap::new();
        let mut altered = 0;
        for (delivery, body) in bodies {
            *copies.entry(delivery).or_default() += 1;
            altered += u64::from(
                unique
                    .get(delivery)
                    .is_none_or(|sent| sent.body != body[..]),
            );
        }
        let missing = unique
            .keys()
            .filter(|delivery| !copies.contains_key(delivery.as_str()));
        let repositories = expected.keys().chain(tallies.keys());
        let mut wrong: Vec<String> = repositories
            .filter(|repository| expected.get(*repository) != tallies.get(*repository))
            .cloned()
            .collect();
        wrong.sort();
        wrong.dedup();
        Self {
            sent: unique.len() as u64,
            repeated: (sent.len() - unique.len()) as u64,
            stored: stored.unsigned_abs(),
            archived: bodies.len() as u64,
            lost: missing.count() as u64,
            doubled: copies.values().map(|count| count - 1).sum(),
            altered,
            repositories: expected.len() as u64,
            wrong,
        }
    }

    /// Whether everything that was sent is where it must be, once, unaltered, and in order.
    #[must_use]
    pub fn is_right(&self) -> bool {
        let Self {
            sent,
            repeated: _,
            stored,
            archived,
            lost,
            doubled,
            altered,
            repositories: _,
            wrong,
        } = self;
        stored == sent && archived == sent && (lost + doubled + altered) == 0 && wrong.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, count: u64| writeln!(f, "  {name:<24}{count:>8}");
        line("sent", self.sent)?;
        line("sent again", self.repeated)?;
        line("stored", self.stored)?;
        line("archived", self.archived)?;
        line("lost", self.lost)?;
        line("doubled", self.doubled)?;
        line("altered", self.altered)?;
        line("repositories", self.repositories)?;
        line("with a wrong chain", self.wrong.len() as u64)?;
        for repository in &self.wrong {
            writeln!(f, "    {repository}")?;
        }
        let verdict = if self.is_right() {
            "every delivery once, unaltered, in order"
        } else {
            "NOT as it must be"
        };
        write!(f, "  {verdict}")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::expected;

    fn delivery(id: u128) -> Delivery {
        Delivery {
            id: uuid::Uuid::from_u128(id),
            event: "push".to_owned(),
            body: format!(r#"{{"n":{id},"repository":{{"full_name":"o/r"}}}}"#).into(),
        }
    }

    fn report(sent: &[Delivery], archived: &[Delivery], handled: &[Delivery]) -> Report {
        let bodies: Vec<_> = archived
            .iter()
            .map(|d| (d.id.to_string(), d.body.to_vec()))
            .collect();
        let none = BTreeSet::new();
        let [expected, handled] = [sent, handled].map(|list| expected(list, &none).unwrap());
        Report::compare(sent, sent.len() as i64, &bodies, &expected, &handled)
    }

    #[test]
    fn only_everything_once_unaltered_and_in_order_is_right() {
        let all = [delivery(1), delivery(2)];
        assert!(report(&all, &all, &all).is_right());
        assert_eq!(report(&all, &all[..1], &all).lost, 1);
        assert_eq!(
            report(&all, &[delivery(1), delivery(2), delivery(2)], &all).doubled,
            1
        );
        assert_eq!(report(&all, &[delivery(1), delivery(3)], &all).altered, 1);
        assert_eq!(
            report(&all, &all, &[delivery(2), delivery(1)]).wrong,
            ["o/r"]
        );
        assert_eq!(report(&all, &all, &[]).wrong, ["o/r"]);
        let mut other = delivery(2);
        other.body = "{}".into();
        assert_eq!(report(&all, &[delivery(1), other], &all).altered, 1);
    }
}
