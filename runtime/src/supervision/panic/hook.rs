use std::backtrace::Backtrace;
use std::cell::{Cell, RefCell};
use std::panic::{self, PanicHookInfo};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::BACKTRACE_INTERVAL;

/// What the hook saw of a panic.
pub(super) struct Seen {
    pub(super) place: Option<String>,
    pub(super) backtrace: Option<Backtrace>,
}

thread_local! {
    /// How many guards this thread is inside of.
    static GUARDS: Cell<u32> = const { Cell::new(0) };
    /// The last panic inside one of them.
    static SEEN: RefCell<Option<Seen>> = const { RefCell::new(None) };
}

/// Puts our hook in front of the one that is there; once in a process, whoever calls.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if GUARDS.try_with(Cell::get).unwrap_or_default() > 0 {
                note(info);
            }
            before(info);
        }));
    });
}

fn note(info: &PanicHookInfo<'_>) {
    let seen = Seen {
        place: info.location().map(ToString::to_string),
        backtrace: is_wanted().then(Backtrace::force_capture),
    };
    // An error: the thread is ending, and its locals with it.
    let _ = SEEN.try_with(|last| last.replace(Some(seen)));
}

/// Whether a backtrace is worth its cost now.
fn is_wanted() -> bool {
    static STARTED: std::sync::LazyLock<Instant> = std::sync::LazyLock::new(Instant::now);
    /// Milliseconds after the start from which on there may be one.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if is_unwanted("RUST_LIB_BACKTRACE").or(is_unwanted("RUST_BACKTRACE")) == Some(true) {
        return false;
    }
    let now = STARTED.elapsed().as_millis() as u64;
    let next = NEXT.load(Ordering::Relaxed);
    let after = now + BACKTRACE_INTERVAL.as_millis() as u64;
    now >= next
        && NEXT
            .compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
}

/// As the standard library reads these variables: `0` is no; not set, the other one counts.
fn is_unwanted(variable: &str) -> Option<bool> {
    std::env::var_os(variable).map(|value| value == "0")
}

/// Runs something inside a guard's mark; what the hook saw of a panic is then [`taken`].
pub(super) fn inside<T>(run: impl FnOnce() -> T) -> T {
    struct Mark;
    impl Drop for Mark {
        fn drop(&mut self) {
            GUARDS.with(|guards| guards.set(guards.get() - 1));
        }
    }
    GUARDS.with(|guards| guards.set(guards.get() + 1));
    let _mark = Mark;
    run()
}

/// What the hook saw of the panic that this thread has just caught.
pub(super) fn taken() -> Option<Seen> {
    SEEN.with(RefCell::take)
}
