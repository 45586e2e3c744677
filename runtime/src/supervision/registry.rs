use std::sync::Arc;
use std::time::SystemTime;

use dashmap::DashMap;

use super::Fitness;
use super::panic::Caught;

/// What a child is doing, as far as its supervisor knows.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChildState {
    /// It runs.
    Running,
    /// It failed and waits for its next start.
    BackingOff,
    /// It runs, and waits for something outside that is not there (the broker, the database): the
    /// text says what.
    Degraded(String),
    /// It has finished after a drain.
    Drained,
    /// It failed more often than its budget allows, and waits until its concern is rebuilt.
    Failed,
}

/// A child's state, restarts and last error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ChildStatus {
    /// What it is doing.
    pub state: ChildState,
    /// How often it was started again.
    pub restarts: u64,
    /// How many panics were caught in it: of its own, and of the handlers that it called.
    pub panics: u64,
    /// Why it failed last, and when by this process's clock.
    pub last_error: Option<(String, SystemTime)>,
    /// The last panic that was caught in it.
    pub last_panic: Option<Caught>,
    /// What was last found out from outside about its being alive, and when by this process's
    /// clock. `None` if nothing was, as yet or since there is nothing to hold it against.
    pub confirmed: Option<(String, SystemTime)>,
}

/// A concern's rebuilds, and whether it has failed.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ConcernStatus {
    /// How often it was rebuilt whole.
    pub rebuilds: u64,
    /// Why it has failed past every budget, if it has; it is still tried.
    pub failed: Option<String>,
    /// Whether it does its work, or leaves it to other processes.
    pub fitness: Fitness,
}

/// The state of every actor of one runtime, readable at any time from any thread. Health and status
/// are made from it.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    children: Arc<DashMap<String, ChildStatus>>,
    concerns: Arc<DashMap<String, ConcernStatus>>,
}

impl Registry {
    /// The status of one child.
    #[must_use]
    pub fn child(&self, name: &str) -> Option<ChildStatus> {
        self.children.get(name).map(|status| status.clone())
    }

    /// All children, sorted by name.
    #[must_use]
    pub fn children(&self) -> Vec<(String, ChildStatus)> {
        sorted(&self.children)
    }

    /// All concerns, sorted by name.
    #[must_use]
    pub fn concerns(&self) -> Vec<(String, ConcernStatus)> {
        sorted(&self.concerns)
    }

    /// Whether every child runs and misses nothing, and no concern has failed.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        let well = |state: &ChildState| matches!(state, ChildState::Running | ChildState::Drained);
        self.children.iter().all(|entry| well(&entry.state))
            && self.concerns.iter().all(|entry| entry.failed.is_none())
    }

    pub(super) fn started(&self, name: &str) {
        self.children
            .entry(name.to_owned())
            .and_modify(|status| {
                status.state = ChildState::Running;
                status.restarts += 1;
            })
            .or_insert(ChildStatus {
                state: ChildState::Running,
                restarts: 0,
                panics: 0,
                last_error: None,
                last_panic: None,
                confirmed: None,
            });
    }

    pub(super) fn failed(&self, name: &str, error: String) {
        self.change(name, |status| {
            status.state = ChildState::BackingOff;
            status.last_error = Some((error, SystemTime::now()));
        });
    }

    pub(super) fn past_budget(&self, name: &str) {
        self.change(name, |status| status.state = ChildState::Failed);
    }

    /// Counts a panic that was caught in a child.
    pub(crate) fn panicked(&self, name: &str, panic: Caught) {
        self.change(name, |status| {
            status.panics += 1;
            status.last_panic = Some(panic);
        });
    }

    /// Notes what was found out from outside about a child's being alive.
    pub(crate) fn confirmed(&self, name: &str, what: String) {
        self.change(name, |status| {
            status.confirmed = Some((what, SystemTime::now()))
        });
    }

    pub(super) fn drained(&self, name: &str) {
        self.change(name, |status| status.state = ChildState::Drained);
    }

    pub(super) fn gone(&self, name: &str) {
        self.children.remove(name);
    }

    /// Says what a child that runs is missing, or why it pauses.
    pub(crate) fn degraded(&self, name: &str, why: String) {
        self.change(name, |status| {
            status.state = ChildState::Degraded(why.clone());
            status.last_error = Some((why, SystemTime::now()));
        });
    }

    /// Only who runs and misses something can have found it: one that was just ended may still say
    /// so.
    pub(super) fn recovered(&self, name: &str) {
        self.change(name, |status| {
            if matches!(status.state, ChildState::Degraded(_)) {
                status.state = ChildState::Running;
            }
        });
    }

    pub(super) fn concern(&self, name: &str) {
        self.concerns.entry(name.to_owned()).or_default();
    }

    pub(super) fn rebuilt(&self, name: &str) {
        if let Some(mut status) = self.concerns.get_mut(name) {
            status.rebuilds += 1;
        }
    }

    /// Says why a concern has failed past every budget, or that it has recovered.
    pub(super) fn concern_failed(&self, name: &str, why: Option<String>) {
        if let Some(mut status) = self.concerns.get_mut(name) {
            status.failed = why;
        }
    }

    pub(super) fn fitness(&self, name: &str, fitness: Fitness) {
        if let Some(mut status) = self.concerns.get_mut(name) {
            status.fitness = fitness;
        }
    }

    fn change(&self, name: &str, change: impl FnOnce(&mut ChildStatus)) {
        if let Some(mut status) = self.children.get_mut(name) {
            change(&mut status);
        }
    }
}

fn sorted<T: Clone>(map: &DashMap<String, T>) -> Vec<(String, T)> {
    let entry = |entry: dashmap::mapref::multiple::RefMulti<'_, String, T>| {
        (entry.key().clone(), entry.value().clone())
    };
    let mut all: Vec<_> = map.iter().map(entry).collect();
    all.sort_by(|(a, _), (b, _)| a.cmp(b));
    all
}
