//! The ledger: what happened, counted from the tables, and whether it is what should have happened.

use std::fmt;

use serde::Serialize;

/// One hop of a message: from what caused it to what it caused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Hop {
    /// Rows that each should have caused one message.
    pub(crate) caused: i64,
    /// Messages in the outbox, now or before.
    pub(crate) enqueued: i64,
    /// Messages that left it.
    pub(crate) dispatched: i64,
    /// Messages that reached the consumer: what it has handled, and the copies that it refused.
    pub(crate) delivered: i64,
    /// Copies that took no effect.
    pub(crate) duplicates_refused: i64,
    /// Effects.
    pub(crate) effects: i64,
    /// Causes without an effect.
    pub(crate) lost: i64,
    /// Effects of a cause that had one before.
    pub(crate) doubled: i64,
    /// Effects that came after that of a later cause of the same document.
    pub(crate) out_of_order: i64,
    /// Effects without a cause: what was rolled back must not be heard of.
    pub(crate) unfounded: i64,
}

/// Microseconds from commit to effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Latency {
    pub(crate) p50: i64,
    pub(crate) p95: i64,
    pub(crate) p99: i64,
    pub(crate) max: i64,
}

/// A run's whole account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ledger {
    /// What it ran on, in words.
    pub(crate) title: String,
    /// What was asked for.
    pub(crate) documents: i64,
    pub(crate) keys: i64,
    pub(crate) seed: i64,
    /// `document.signed`, to the consumer `notifications`.
    pub(crate) signed: Hop,
    /// `notification.created`, to the consumer `mailbox`.
    pub(crate) created: Hop,
    /// Copies that were enqueued on purpose.
    pub(crate) copies: i64,
    /// Rows left in outbox, queues and retry table, and dead letters.
    pub(crate) left: i64,
    /// Notifications of other runs that use the same broker.
    pub(crate) foreign: i64,
    /// Workers killed.
    pub(crate) kills: i64,
    pub(crate) latency: Latency,
    /// Where it got stuck, if it did.
    pub(crate) stuck: Option<String>,
}

impl Ledger {
    /// Every invariant that does not hold, as a sentence.
    pub(crate) fn violations(&self) -> Vec<String> {
        let (one, two) = (&self.signed, &self.created);
        let sum = |count: fn(&Hop) -> i64| count(one) + count(two);
        let zero = [
            ("lost", sum(|hop| hop.lost)),
            ("doubled", sum(|hop| hop.doubled)),
            ("out of order", sum(|hop| hop.out_of_order)),
            ("unfounded", sum(|hop| hop.unfounded)),
            (
                "left over in outbox, queues, retry table or dead letters",
                self.left,
            ),
        ];
        let equal = [
            (
                "documents signed",
                one.caused,
                "documents to sign",
                self.documents,
            ),
            (
                "documents notified",
                one.effects,
                "documents signed",
                one.caused,
            ),
            ("mails", two.effects, "notifications", one.effects),
            (
                "document.signed enqueued",
                one.enqueued,
                "signatures and copies",
                one.caused + self.copies,
            ),
            (
                "document.signed dispatched",
                one.dispatched,
                "enqueued",
                one.enqueued,
            ),
            (
                "copies refused",
                one.duplicates_refused,
                "copies enqueued",
                self.copies,
            ),
            (
                "notification.created enqueued",
                two.enqueued,
                "notifications",
                two.caused,
            ),
            (
                "notification.created dispatched",
                two.dispatched,
                "enqueued",
                two.enqueued,
            ),
        ];
        let zero = zero.into_iter().filter(|(_, count)| *count != 0);
        let zero = zero.map(|(what, count)| format!("{} {what}: must be 0", grouped(count)));
        let equal = equal.into_iter().filter(|(_, one, _, other)| one != other);
        let equal = equal.map(|(what, one, than, other)| {
            format!("{} {what}, but {} {than}", grouped(one), grouped(other))
        });
        let stuck = self
            .stuck
            .iter()
            .map(|_| "it did not become quiet".to_owned());
        stuck.chain(zero).chain(equal).collect()
    }

    /// The ledger as one JSON object.
    pub(crate) fn json(&self) -> String {
        let (one, two) = (&self.signed, &self.created);
        let ms = |micros: i64| micros as f64 / 1000.0;
        serde_json::json!({
            "signed": one.caused,
            "enqueued": one.enqueued,
            "dispatched": one.dispatched,
            "delivered": one.delivered,
            "duplicates_refused": one.duplicates_refused,
            "notified": one.effects,
            "lost": one.lost + two.lost,
            "doubled": one.doubled + two.doubled,
            "out_of_order": one.out_of_order + two.out_of_order,
            "unfounded": one.unfounded + two.unfounded,
            "latency_ms": {
                "p50": ms(self.latency.p50),
                "p95": ms(self.latency.p95),
                "p99": ms(self.latency.p99),
            },
            "mailed": two.effects,
            "copies": self.copies,
            "left": self.left,
            "kills": self.kills,
            "seed": self.seed,
        })
        .to_string()
    }
}

impl Latency {
    /// The percentiles of durations in microseconds, each the smallest one that is not exceeded by
    /// so many percent of them.
    pub(crate) fn of(mut micros: Vec<i64>) -> Self {
        micros.sort_unstable();
        let Some(max) = micros.last().copied() else {
            return Self::default();
        };
        let rank = |percent: usize| micros[(micros.len() * percent).div_ceil(100).max(1) - 1];
        Self {
            p50: rank(50),
            p95: rank(95),
            p99: rank(99),
            max,
        }
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (one, two) = (&self.signed, &self.created);
        writeln!(f, "  {}", self.title)?;
        writeln!(
            f,
            "  {} signatures on {} documents, seed {}",
            grouped(self.documents),
            grouped(self.keys),
            self.seed
        )?;
        writeln!(f)?;
        writeln!(
            f,
            "  {:<24}{:>24}{:>24}",
            "", "document.signed", "notification.created"
        )?;
        let unit = |count: i64, unit: &str| format!("{} {unit}", grouped(count));
        let rows: [(&str, String, String); 10] = [
            (
                "caused by",
                unit(one.caused, "signed"),
                unit(two.caused, "notified"),
            ),
            ("enqueued", grouped(one.enqueued), grouped(two.enqueued)),
            (
                "dispatched",
                grouped(one.dispatched),
                grouped(two.dispatched),
            ),
            ("delivered", grouped(one.delivered), grouped(two.delivered)),
            (
                "duplicates refused",
                grouped(one.duplicates_refused),
                grouped(two.duplicates_refused),
            ),
            (
                "took effect",
                unit(one.effects, "notified"),
                unit(two.effects, "mailed"),
            ),
            ("lost", grouped(one.lost), grouped(two.lost)),
            ("doubled", grouped(one.doubled), grouped(two.doubled)),
            (
                "out of order",
                grouped(one.out_of_order),
                grouped(two.out_of_order),
            ),
            (
                "from a rollback",
                grouped(one.unfounded),
                grouped(two.unfounded),
            ),
        ];
        for (name, left, right) in rows {
            writeln!(f, "  {name:<24}{left:>24}{right:>24}")?;
        }
        writeln!(f)?;
        let Latency { p50, p95, p99, max } = self.latency;
        let ms = |micros: i64| format!("{:.1} ms", micros as f64 / 1000.0);
        writeln!(
            f,
            "  commit to effect        p50 {}   p95 {}   p99 {}   max {}",
            ms(p50),
            ms(p95),
            ms(p99),
            ms(max)
        )?;
        writeln!(
            f,
            "    by the database's clock: from the signature's row, written just before its"
        )?;
        writeln!(
            f,
            "    transaction commits, to the notification's row, written in the consumer's"
        )?;
        writeln!(
            f,
            "  workers killed          {} by SIGKILL, and started again",
            self.kills
        )?;
        if self.foreign > 0 {
            writeln!(
                f,
                "  not of this run         {} notifications: other databases use this broker",
                grouped(self.foreign)
            )?;
        }
        writeln!(f)?;
        let violations = self.violations();
        if violations.is_empty() {
            return write!(f, "  Nothing lost, nothing doubled, nothing out of order.");
        }
        write!(f, "  THE ACCOUNT DOES NOT HOLD:")?;
        violations
            .iter()
            .try_for_each(|violation| write!(f, "\n  - {violation}"))
    }
}

/// A number with a comma between each three digits.
fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut text = String::from(if number < 0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        let grouped: Vec<String> = [0, 999, 1000, 1_234_567, -1000].map(grouped).into();
        assert_eq!(grouped, ["0", "999", "1,000", "1,234,567", "-1,000"]);
    }

    #[test]
    fn percentiles_are_values_that_occurred() {
        assert_eq!(Latency::of(vec![]), Latency::default());
        assert_eq!(
            Latency::of(vec![7]),
            Latency {
                p50: 7,
                p95: 7,
                p99: 7,
                max: 7
            }
        );
        let hundred = Latency::of((1..=100).rev().collect());
        assert_eq!(
            hundred,
            Latency {
                p50: 50,
                p95: 95,
                p99: 99,
                max: 100
            }
        );
    }

    #[test]
    fn any_single_deviation_is_a_violation() {
        let hop = |caused, copies| Hop {
            caused,
            enqueued: caused + copies,
            dispatched: caused + copies,
            delivered: caused + copies,
            duplicates_refused: copies,
            effects: caused,
            ..Hop::default()
        };
        let good = Ledger {
            title: String::new(),
            documents: 10,
            keys: 2,
            seed: 1,
            signed: hop(10, 2),
            created: hop(10, 0),
            copies: 2,
            left: 0,
            foreign: 0,
            kills: 2,
            latency: Latency::default(),
            stuck: None,
        };
        assert_eq!(good.violations(), Vec::<String>::new());
        let changes: [fn(&mut Ledger); 9] = [
            |l| l.signed.lost = 1,
            |l| l.created.doubled = 1,
            |l| l.signed.out_of_order = 1,
            |l| l.created.unfounded = 1,
            |l| l.left = 1,
            |l| l.signed.effects = 9,
            |l| l.created.dispatched = 9,
            |l| l.documents = 11,
            |l| l.stuck = Some(String::new()),
        ];
        for change in changes {
            let mut bad = good.clone();
            change(&mut bad);
            assert!(!bad.violations().is_empty(), "{bad:?}");
        }
    }
}
