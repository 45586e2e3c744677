//! What services log: what `RUST_LOG` asks for on standard error, and, for a test that wants to
//! show it when it fails, the last lines of single actor systems.

use std::collections::{HashMap, VecDeque};
use std::fmt::{self, Write as _};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// So many lines are kept of each system.
const LINES_MAX: usize = 400;

/// The lines of the systems that are to be kept, by their ids.
static KEPT: LazyLock<Mutex<HashMap<usize, VecDeque<String>>>> = LazyLock::new(Mutex::default);

/// What the lines' times count from.
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

fn kept() -> MutexGuard<'static, HashMap<usize, VecDeque<String>>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows what `RUST_LOG` asks for, on standard error.
pub(crate) fn show_logs() {
    let shown = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    // A second call in one process finds the first one's subscriber.
    let _ = tracing_subscriber::registry()
        .with(shown.with_filter(filter))
        .with(Keeper.with_filter(OfPosta))
        .try_init();
}

/// From now on keeps the last lines of a system.
pub(crate) fn keep(system: usize) {
    kept().entry(system).or_default();
}

/// The last lines of a system, its threads' together in their order; they are kept no longer.
pub(crate) fn take(system: usize) -> Vec<String> {
    kept().remove(&system).unwrap_or_default().into()
}

/// Posta's own events down to debug.
struct OfPosta;

impl<S> Filter<S> for OfPosta {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        metadata.is_event()
            && *metadata.level() <= Level::DEBUG
            && metadata.target().starts_with("posta::")
    }
}

struct Keeper;

impl<S: Subscriber> Layer<S> for Keeper {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let Some(system) = actix::System::try_current() else {
            return;
        };
        let mut kept = kept();
        let Some(lines) = kept.get_mut(&system.id()) else {
            return;
        };
        let metadata = event.metadata();
        let (level, target) = (metadata.level(), metadata.target());
        let at = STARTED.elapsed().as_secs_f64();
        let mut line = Line(format!("{at:.3} {level} {target}:"));
        event.record(&mut line);
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(line.0);
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Nothing refuses text here.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
