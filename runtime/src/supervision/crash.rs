//! Named points at which a test can crash the process, to prove what survives. Compiled in by the
//! feature `crash-points` only.
//!
//! `POSTA_CRASH_AT=dispatch.published` aborts the process when that point is reached,
//! `POSTA_CRASH_AT=dispatch.published:3` the third time. A test that has several runtimes in one
//! process says itself what is to happen at a point ([`at_crash_points`]).

#[cfg(feature = "crash-points")]
mod enabled {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    static HOOK: OnceLock<fn(&'static str)> = OnceLock::new();

    /// Has a function called at every crash point of this process, on the thread that reaches it,
    /// with the point's name. It may unwind, which ends the actor there. Only the first one counts.
    pub fn at_crash_points(hook: fn(&'static str)) {
        let _ = HOOK.set(hook);
    }

    struct Plan {
        point: String,
        left: AtomicU64,
    }

    fn plan() -> Option<&'static Plan> {
        static PLAN: OnceLock<Option<Plan>> = OnceLock::new();
        PLAN.get_or_init(|| {
            let text = std::env::var("POSTA_CRASH_AT").ok()?;
            let (point, count) = match text.split_once(':') {
                Some((point, count)) => (point, count.parse().ok()?),
                None => (text.as_str(), 1),
            };
            Some(Plan {
                point: point.to_owned(),
                left: AtomicU64::new(count),
            })
        })
        .as_ref()
    }

    pub(crate) fn reach(point: &'static str) {
        if let Some(hook) = HOOK.get() {
            hook(point);
        }
        let Some(plan) = plan().filter(|plan| plan.point == point) else {
            return;
        };
        if plan.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            eprintln!("crash point {point} reached");
            std::process::abort();
        }
    }
}

#[cfg(feature = "crash-points")]
pub use enabled::at_crash_points;
#[cfg(feature = "crash-points")]
pub(crate) use enabled::reach;

#[cfg(not(feature = "crash-points"))]
pub(crate) fn reach(_point: &'static str) {}

/// Marks a boundary between two steps that a crash can fall into.
macro_rules! crash_point {
    ($name:literal) => {
        $crate::supervision::crash::reach($name)
    };
}

pub(crate) use crash_point;
