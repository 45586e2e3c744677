use std::sync::Arc;
use std::time::SystemTime;

use dashmap::DashMap;

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
}

/// A child's state, restarts and last error.
#[derive(Clone, Debug)]
pub struct ChildStatus {
    /// What it is doing.
    pub state: ChildState,
    /// How often it was started again.
    pub restarts: u64,
    /// Why it failed last, and when by this process's clock.
    pub last_error: Option<(String, SystemTime)>,
}

/// The state of every actor of one runtime, readable at any time from any thread. Health and status
/// are made from it.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    children: Arc<DashMap<String, ChildStatus>>,
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
        let mut all: Vec<_> = self
            .children
            .iter()
            .map(|entry| (entry.key().clone(), entry.value().clone()))
            .collect();
        all.sort_by(|(a, _), (b, _)| a.cmp(b));
        all
    }

    /// Whether every child runs and misses nothing.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        self.children.iter().all(|entry| {
            matches!(
                entry.value().state,
                ChildState::Running | ChildState::Drained
            )
        })
    }

    pub(crate) fn started(&self, name: &str) {
        self.children
            .entry(name.to_owned())
            .and_modify(|status| {
                status.state = ChildState::Running;
                status.restarts += 1;
            })
            .or_insert(ChildStatus {
                state: ChildState::Running,
                restarts: 0,
                last_error: None,
            });
    }

    pub(crate) fn failed(&self, name: &str, error: String) {
        if let Some(mut status) = self.children.get_mut(name) {
            status.state = ChildState::BackingOff;
            status.last_error = Some((error, SystemTime::now()));
        }
    }

    pub(crate) fn drained(&self, name: &str) {
        self.set(name, ChildState::Drained);
    }

    pub(crate) fn degraded(&self, name: &str, why: String) {
        if let Some(mut status) = self.children.get_mut(name) {
            status.state = ChildState::Degraded(why.clone());
            status.last_error = Some((why, SystemTime::now()));
        }
    }

    pub(crate) fn recovered(&self, name: &str) {
        self.set(name, ChildState::Running);
    }

    fn set(&self, name: &str, state: ChildState) {
        if let Some(mut status) = self.children.get_mut(name) {
            status.state = state;
        }
    }
}
