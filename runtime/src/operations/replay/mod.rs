//! Replay runs: a frozen selection of dead letters that is sent on its way again, step by step.
//!
//! A run is rows: `replay_run` says how it goes, `replay_item` which letters it has and what became
//! of each. The [`Replayer`] of every process looks for a run whose next step is due and takes it;
//! the run's row is locked for the length of the step, so however many processes there are, a run
//! has one hand on it and keeps its rate. A step is one transaction:
//!
//! ```text
//! lock the run ── settle: which letters that were on their way got through, which died again
//!      │
//!      ├─ as many died again as it allows ──────────────► stopped  (an operator resumes it)
//!      ├─ nothing waits, nothing is on its way ─────────► finished
//!      └─ the next letters, locked: dead and valid ones go back to their places, the others are
//!         left out; when the next step is due, by the database's clock; commit
//! ```
//!
//! Letters that keep their key's place come first, in the order of their places, so of each key the
//! head before what has none and goes to the key's end. A letter that would wait behind the place
//! of another one is left out: that one is not in the run, is no message, or has died again. So is
//! one whose key was parked after it went, as soon as the run has nothing else to do: it is taken
//! back, dead and untried. Nothing that waits for an operator uses up what may be on its way.
//!
//! The counts of a run's letters are in its row, and whatever changes a letter's state in it
//! changes them: a step costs what its own letters cost, however many the run has.
//!
//! A crash anywhere in a step rolls it back, and the next process finds the run as it was before.
//! Pausing and cancelling change the run's row, so they wait for a step under way and hold from the
//! next one on.
//!
//! No more than a bounded number of a run's letters are on their way at once ([`Pace`]): a run that
//! stops after N failures never lets more than N die.

mod pace;
mod readmission;
mod recall;
mod replayer;
mod step;

pub(crate) use pace::Pace;
pub(crate) use readmission::{Readmission, parse_again, readmit};
pub(crate) use recall::{end_recall, recall, take_row};
pub(crate) use replayer::Replayer;
pub(crate) use step::{Stepped, step};
