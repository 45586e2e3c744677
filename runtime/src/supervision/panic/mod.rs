//! Panics: where they are caught, and what is known of them.
//!
//! Whatever code of the application's (a handler, a codec, an error's text, the constructor of a
//! consumer's state) or of ours (an actor's body, a statement on a blocking thread) may panic runs
//! inside a guard: [`Guarded`] for a future, [`guard`] for a call. A guard catches the unwinding and
//! says what was panicked with, where, and through which frames.
//!
//! The last two only the panic hook can know. Ours is put in front of the one that was there, once,
//! at the first start in the process, and always calls that one too: whoever logs panics by a hook
//! goes on doing so. It does nothing of its own outside a guard, which a mark of the thread tells.
//!
//! A backtrace is captured unless `RUST_BACKTRACE=0` (or `RUST_LIB_BACKTRACE=0`) says that none is
//! wanted: a panic in production is rare and the one chance to learn where it came from, and who
//! operates a service has seldom set a variable beforehand. Since it costs a millisecond or
//! more, and a message can panic a thousand times a second, there is at most one in
//! [`BACKTRACE_INTERVAL`]; the panics between have their text and place.

mod guarded;
mod hook;

use std::any::Any;
use std::fmt;
use std::time::Duration;

use super::error_text::{ERROR_BYTES_MAX, cut, panic_text};
pub(crate) use guarded::{Guarded, guard};
pub(crate) use hook::install;

/// The shortest time between two backtraces in one process.
pub(crate) const BACKTRACE_INTERVAL: Duration = Duration::from_millis(100);

/// A panic that a guard caught.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caught {
    /// What it was given; at most 64 KiB.
    pub text: String,
    /// File, line and column, as far as they are known.
    pub place: Option<String>,
    /// Its frames, if they were captured; at most 64 KiB.
    pub backtrace: Option<String>,
}

impl Caught {
    fn new(payload: &(dyn Any + Send), seen: Option<hook::Seen>) -> Self {
        // It was caught before, on another thread, and goes on here.
        if let Some(caught) = payload.downcast_ref::<Self>() {
            return caught.clone();
        }
        let (place, backtrace) = match seen {
            Some(seen) => (seen.place, seen.backtrace),
            None => (None, None),
        };
        Self {
            text: cut(panic_text(payload), ERROR_BYTES_MAX),
            place,
            backtrace: backtrace.map(|frames| cut(frames.to_string(), ERROR_BYTES_MAX)),
        }
    }
}

/// What it was given, and where.
impl fmt::Display for Caught {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match &self.place {
            Some(place) => write!(f, " (at {place})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
