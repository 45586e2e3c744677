//! What a run came to: a table for people, and one line for programs.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde_json::json;

use super::checker::Verdict;
use super::driver::Outcome;
use super::plan::Plan;
use super::points::{self, Tally};
use crate::world::BrokerKind;

/// What has been done on one combination of database and broker.
#[derive(Clone, Debug)]
pub(super) struct Combination {
    pub(super) name: &'static str,
    pub(super) broker: BrokerKind,
    pub(super) rounds: u64,
    pub(super) messages: u64,
    effects: u64,
    letters: u64,
    looks: u64,
    faults: BTreeMap<&'static str, u64>,
    pub(super) tally: Tally,
    verdict: Verdict,
    /// Seeds of rounds in which something was wrong, and where the evidence is.
    wrong: Vec<String>,
}

/// The whole of it.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) seed: u64,
    pub(super) minutes: f64,
    /// The options that chose the combinations, if any did.
    pub(super) selection: String,
    pub(super) combinations: Vec<Combination>,
}

impl Combination {
    pub(super) fn new(name: &'static str, broker: BrokerKind) -> Self {
        Self {
            name,
            broker,
            rounds: 0,
            messages: 0,
            effects: 0,
            letters: 0,
            looks: 0,
            faults: BTreeMap::new(),
            tally: Tally::default(),
            verdict: Verdict::default(),
            wrong: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, plan: &Plan, outcome: &Outcome) {
        self.rounds += 1;
        self.messages += outcome.messages;
        self.effects += outcome.effects;
        self.letters += outcome.letters;
        self.looks += outcome.looks;
        for (kind, times) in &outcome.faults {
            *self.faults.entry(kind).or_default() += times;
        }
        if !outcome.verdict.is_clean() {
            let (seed, evidence) = (plan.seed, plan.evidence.display());
            self.wrong
                .push(format!("{}, seed {seed}: {evidence}", self.name));
        }
        self.verdict.add(outcome.verdict.clone());
    }

    /// All faults, crashes at points among them.
    pub(super) fn faults(&self) -> u64 {
        self.tally.total() + self.faults.values().sum::<u64>()
    }
}

impl Report {
    fn verdict(&self) -> Verdict {
        let mut all = Verdict::default();
        for combination in &self.combinations {
            all.add(combination.verdict.clone());
        }
        all
    }

    pub(super) fn is_clean(&self) -> bool {
        self.verdict().is_clean()
    }

    fn sum(&self, number: impl Fn(&Combination) -> u64) -> u64 {
        self.combinations.iter().map(number).sum()
    }

    /// For programs; on one line.
    pub(super) fn json(&self) -> String {
        let mut tally = Tally::default();
        self.combinations.iter().for_each(|it| tally.add(&it.tally));
        let points = points::POINTS.iter().filter(|point| {
            let here = |it: &Combination| points::with(it.broker).any(|p| p.name == point.name);
            self.combinations.iter().any(here)
        });
        let points: serde_json::Map<String, serde_json::Value> = points
            .map(|point| (point.name.to_owned(), tally.hits(point.name).into()))
            .collect();
        let verdict = self.verdict();
        json!({
            "messages": self.sum(|it| it.messages),
            "faults": self.sum(Combination::faults),
            "crash_points": points,
            "lost": verdict.lost,
            "doubled": verdict.doubled,
            "out_of_order": verdict.out_of_order,
            "broken": verdict.broken.len(),
        })
        .to_string()
    }
}

type OfCombination = fn(&Combination) -> u64;
type OfVerdict = fn(&Verdict) -> usize;

/// A line of a table: a title and one number for each combination, and their sum.
fn line(out: &mut String, title: &str, numbers: impl Iterator<Item = Option<u64>>) {
    let numbers: Vec<Option<u64>> = numbers.collect();
    let _ = write!(out, "{title:<26}");
    for number in &numbers {
        let text = number.map_or("-".to_owned(), |number| number.to_string());
        let _ = write!(out, "{text:>19}");
    }
    let _ = writeln!(out, "{:>9}", numbers.iter().flatten().sum::<u64>());
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = String::new();
        let all = &self.combinations;
        let _ = write!(out, "{:<26}", "");
        all.iter().for_each(|it| {
            let _ = write!(out, "{:>19}", it.name);
        });
        let _ = writeln!(out, "{:>9}", "all");
        let numbers: [(&str, OfCombination); 6] = [
            ("rounds", |it| it.rounds),
            ("messages", |it| it.messages),
            ("effects", |it| it.effects),
            ("dead letters", |it| it.letters),
            ("judgements", |it| it.looks),
            ("faults", Combination::faults),
        ];
        for (title, number) in numbers {
            line(&mut out, title, all.iter().map(|it| Some(number(it))));
        }
        out.push_str("\nfaults by kind\n");
        line(
            &mut out,
            "crashed at a point",
            all.iter().map(|it| Some(it.tally.total())),
        );
        let mut kinds: Vec<&str> = all
            .iter()
            .flat_map(|it| it.faults.keys().copied())
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        for kind in kinds {
            line(
                &mut out,
                kind,
                all.iter().map(|it| it.faults.get(kind).copied()),
            );
        }
        out.push_str("\ncrash points\n");
        for point in &points::POINTS {
            let hits = all.iter().map(|it| {
                let here = points::with(it.broker).any(|p| p.name == point.name);
                here.then(|| it.tally.hits(point.name))
            });
            line(&mut out, point.name, hits);
        }
        out.push_str("\nwrong\n");
        let wrong: [(&str, OfVerdict); 4] = [
            ("lost", |it| it.lost),
            ("doubled", |it| it.doubled),
            ("out of order", |it| it.out_of_order),
            ("broken, in all", |it| it.broken.len()),
        ];
        for (title, count) in wrong {
            line(
                &mut out,
                title,
                all.iter().map(|it| Some(count(&it.verdict) as u64)),
            );
        }
        for combination in all {
            for what in combination.verdict.broken.iter().take(10) {
                let _ = writeln!(out, "{}: {what:.600}", combination.name);
            }
            for evidence in &combination.wrong {
                let _ = writeln!(out, "evidence: {evidence}");
            }
        }
        let (seed, minutes, only) = (self.seed, self.minutes, &self.selection);
        let again = format!("tests/faults --minutes {minutes:.0} --seed {seed}{only}");
        let _ = writeln!(out, "\nseed {seed}, {minutes:.1} minutes; again: {again}");
        f.write_str(&out)
    }
}
