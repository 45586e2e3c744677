use std::fmt;

use crate::lease::Board;
use crate::supervision::{ChildState, ChildStatus, ConcernStatus, Fitness, Phase, Tree};

/// How a runtime is, for probes: made from the registry at one moment, without asking a database or
/// a broker, so it answers at once whatever hangs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Whether this process can still heal itself. `false` asks the platform to restart it: the
    /// supervisors are gone, or the thread of an arbiter stays blocked, and what it holds nobody
    /// here can take from it.
    pub live: bool,
    /// Whether requests are to be sent here: every lease keeper has ticked once, nothing drains,
    /// nothing has failed past its budget. A broker or database that is away does not make a
    /// process unready, once it was ready: what is enqueued waits, and all others would be
    /// unready too.
    pub ready: bool,
    /// Everything that is not as it should be, one sentence each, for people; empty when all is
    /// well.
    pub reasons: Vec<String>,
}

impl Health {
    /// Reads it off.
    pub(super) fn of(tree: &Tree, boards: &[Board]) -> Self {
        let mut reasons = Vec::new();
        let phase = *tree.phase.borrow();
        // At the end of a drain they go as well.
        let supervised = phase >= Phase::Drain || tree.is_supervised();
        if !supervised {
            reasons.push("a supervisor is gone".to_owned());
        }
        match phase {
            Phase::Run => {}
            Phase::Drain => reasons.push("it drains".to_owned()),
            Phase::Abort => reasons.push("it was aborted".to_owned()),
        }
        let unticked = boards.iter().filter(|board| board.ticked().is_none());
        let unticked: Vec<String> = unticked.map(|board| board.resource().name()).collect();
        let ticked = unticked.is_empty();
        let unticked = unticked.into_iter();
        reasons.extend(unticked.map(|name| format!("the leases of {name} have not been seen yet")));
        let concerns = tree.registry.concerns();
        let failed = concerns.iter().any(|(_, concern)| concern.failed.is_some());
        reasons.extend(concerns.iter().filter_map(failed_concern));
        reasons.extend(concerns.iter().filter_map(unfit_concern));
        reasons.extend(tree.registry.children().iter().filter_map(unwell_child));
        let blocked = tree.arbiters.blocked();
        for blocked in &blocked {
            let child = blocked.child.as_deref().unwrap_or("nobody known");
            reasons.push(format!(
                "an arbiter has not answered for {:?}: {child:?} does not yield",
                blocked.since.elapsed()
            ));
        }
        let hopeless = blocked.iter().any(|it| it.is_hopeless) || failed && !blocked.is_empty();
        Self {
            live: supervised && !hopeless,
            ready: supervised && ticked && phase == Phase::Run && !failed && !hopeless,
            reasons,
        }
    }
}

fn failed_concern((name, status): &(String, ConcernStatus)) -> Option<String> {
    let why = status.failed.as_ref()?;
    Some(format!("{name:?} has failed past every budget: {why}"))
}

fn unfit_concern((name, status): &(String, ConcernStatus)) -> Option<String> {
    match status.fitness {
        Fitness::Fit => None,
        Fitness::OnTrial => Some(format!(
            "{name:?} has failed several times in a row and leaves its work to other processes, \
             if there are any"
        )),
        Fitness::Resting => Some(format!("{name:?} rests before it is started anew")),
    }
}

fn unwell_child((name, status): &(String, ChildStatus)) -> Option<String> {
    let last = || {
        let error = status.last_error.as_ref();
        error.map_or("", |(error, _)| error.as_str())
    };
    match &status.state {
        ChildState::Running | ChildState::Drained => None,
        ChildState::Degraded(why) => Some(format!("{name:?} waits: {why}")),
        ChildState::BackingOff => Some(format!("{name:?} failed and is started again: {}", last())),
        ChildState::Failed => Some(format!("{name:?} failed too often: {}", last())),
    }
}

/// `live, ready` or what it is not, then the reasons.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.live { "live" } else { "not live" })?;
        f.write_str(if self.ready { ", ready" } else { ", not ready" })?;
        self.reasons
            .iter()
            .try_for_each(|reason| write!(f, "; {reason}"))
    }
}
