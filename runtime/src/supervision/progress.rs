use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What an actor says of itself while it runs, for whoever holds that against the outside: what it
/// is at, and how many steps it has taken. Shared by all its incarnations; cheap to clone.
///
/// A step is something that ended: deliveries that came, a handler's call, rows that were settled.
/// One that is busy takes steps, however slowly; one that is stuck does not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    steps: AtomicU64,
    doing: AtomicU8,
}

/// What an actor is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doing {
    /// Nothing that would be missed: it has no lease, or makes itself ready.
    #[default]
    Nothing,
    /// It waits for work, and believes that it would get it.
    Waiting,
    /// It works.
    Working,
}

impl Progress {
    /// Something ended.
    pub(crate) fn step(&self) {
        self.inner.steps.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn steps(&self) -> u64 {
        self.inner.steps.load(Ordering::Relaxed)
    }

    /// From now on.
    pub(crate) fn begin(&self, doing: Doing) {
        self.inner.doing.store(doing as u8, Ordering::Relaxed);
    }

    pub(crate) fn doing(&self) -> Doing {
        match self.inner.doing.load(Ordering::Relaxed) {
            1 => Doing::Waiting,
            2 => Doing::Working,
            _ => Doing::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_begun_is_what_is_done() {
        let progress = Progress::default();
        assert_eq!((progress.doing(), progress.steps()), (Doing::Nothing, 0));
        for doing in [Doing::Waiting, Doing::Working, Doing::Nothing] {
            progress.begin(doing);
            progress.clone().step();
            assert_eq!(progress.doing(), doing);
        }
        assert_eq!(progress.steps(), 3);
    }
}
