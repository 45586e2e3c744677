//! The crash points, and how often each was hit.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;

use crate::world::BrokerKind;

/// A crash point of the runtime.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) name: &'static str,
    /// Only there with this broker.
    broker: Option<BrokerKind>,
    /// How often it may be passed before the crash, at most: those that are seldom reached crash at
    /// the first time.
    pub(super) passes_max: u64,
}

const fn often(name: &'static str) -> Point {
    Point {
        name,
        broker: None,
        passes_max: 6,
    }
}

const fn seldom(name: &'static str) -> Point {
    Point {
        name,
        broker: None,
        passes_max: 1,
    }
}

const fn on_rabbitmq(point: Point) -> Point {
    Point {
        broker: Some(BrokerKind::RabbitMq),
        ..point
    }
}

/// Every crash point of the runtime that a service comes by.
pub(super) const POINTS: [Point; 37] = [
    often("enqueue.inserted"),
    often("enqueue.committed"),
    often("dispatch.claimed"),
    seldom("dispatch.enqueued_due"),
    on_rabbitmq(often("dispatch.sent")),
    often("dispatch.published"),
    often("dispatch.settling"),
    often("dispatch.settled"),
    often("consume.delivered"),
    often("consume.admitted"),
    often("consume.handled"),
    often("consume.committed"),
    often("consume.acknowledged"),
    seldom("consume.held"),
    seldom("consume.suspected"),
    on_rabbitmq(seldom("dead_queue.committed")),
    seldom("retry.claimed"),
    seldom("retry.claimed_alone"),
    seldom("retry.handled"),
    seldom("retry.committed"),
    seldom("retry.committed_together"),
    seldom("retry.set_aside"),
    often("lease.renewed"),
    seldom("lease.acquired"),
    seldom("lease.given_back"),
    often("lease.committed"),
    seldom("replay.settled"),
    seldom("replay.stepped"),
    seldom("replay.committed"),
    seldom("layout.begun"),
    on_rabbitmq(seldom("layout.bound")),
    on_rabbitmq(seldom("layout.unbound")),
    on_rabbitmq(seldom("layout.unbinding_recorded")),
    on_rabbitmq(seldom("layout.drained")),
    seldom("layout.switched"),
    on_rabbitmq(seldom("layout.removed")),
    on_rabbitmq(seldom("layout.cleared")),
];

/// The crash points of a change of layout, which only a round with such changes comes by.
pub(super) const OF_LAYOUTS: [&str; 8] = [
    "layout.begun",
    "layout.bound",
    "layout.unbound",
    "layout.unbinding_recorded",
    "layout.drained",
    "layout.switched",
    "layout.removed",
    "layout.cleared",
];

/// How often each point was hit, and how often in vain aimed at.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    hits: BTreeMap<&'static str, u64>,
    misses: BTreeMap<&'static str, u64>,
}

impl Tally {
    pub(super) fn hit(&mut self, point: &'static str) {
        *self.hits.entry(point).or_default() += 1;
    }

    pub(super) fn miss(&mut self, point: &'static str) {
        *self.misses.entry(point).or_default() += 1;
    }

    pub(super) fn hits(&self, point: &str) -> u64 {
        self.hits.get(point).copied().unwrap_or_default()
    }

    pub(super) fn total(&self) -> u64 {
        self.hits.values().sum()
    }

    pub(super) fn add(&mut self, other: &Self) {
        for (point, hits) in &other.hits {
            *self.hits.entry(point).or_default() += hits;
        }
        for (point, misses) in &other.misses {
            *self.misses.entry(point).or_default() += misses;
        }
    }

    /// The next point to aim at, among `only` those if any is named: of those that were hit least, one; what was missed counts a little,
    /// so that a point that nobody comes by does not keep all others waiting.
    pub(super) fn next(
        &self,
        broker: BrokerKind,
        only: &[&str],
        not_here: &[&str],
        rng: &mut StdRng,
    ) -> Option<Point> {
        let here = |point: &&Point| {
            point.broker.is_none_or(|it| it == broker)
                && (only.is_empty() || only.contains(&point.name))
                && !not_here.contains(&point.name)
        };
        let weight = |point: &Point| {
            let misses = self.misses.get(point.name).copied().unwrap_or_default();
            self.hits(point.name) + misses / 3
        };
        let least = POINTS.iter().filter(here).map(weight).min()?;
        let points: Vec<&Point> = POINTS
            .iter()
            .filter(here)
            .filter(|point| weight(point) <= least + 1)
            .collect();
        points.choose(rng).map(|point| **point)
    }
}

/// The points that exist with a broker.
pub(super) fn with(broker: BrokerKind) -> impl Iterator<Item = &'static Point> {
    POINTS
        .iter()
        .filter(move |point| point.broker.is_none_or(|it| it == broker))
}

/// Every point of the runtime's source is aimed at.
#[test]
fn every_crash_point_of_the_runtime_is_aimed_at() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../runtime/src");
    let mut found = std::collections::BTreeSet::new();
    let mut folders = vec![std::path::PathBuf::from(root)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source file");
            for part in text.split("crash_point!(\"").skip(1) {
                found.extend(part.split_once('"').map(|(name, _)| name.to_owned()));
            }
        }
    }
    let aimed_at = POINTS.iter().map(|point| point.name);
    let aimed_at = aimed_at.map(str::to_owned).collect();
    assert_eq!(found, aimed_at);
}
