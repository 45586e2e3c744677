//! Runtimes whose parts fail, block and fall silent, and how runtimes end: on real servers, with
//! real signals, in processes of their own where a process is to end.

mod blocked;
mod child;
mod drain;
mod escalation;
mod health;
mod panic;
mod signals;
mod silent;
mod systemd;
mod unfit;
