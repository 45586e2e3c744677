//! The main job, as its user runs it: the real binary, killed at random moments, and its ledger.
//!
//! What the binary says of itself is believed only as far as its own tables go: a ledger is counted
//! from them, and every number in it is checked here against what was asked for.

mod binary;
mod input;
mod resumed;
mod small;
mod usage;
