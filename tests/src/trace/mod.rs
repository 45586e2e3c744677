//! What a tracing backend would see (G9): two processes, each with an exporter of its own, and a
//! judge that reads what they exported.
//!
//! The sender enqueues and dispatches and handles nothing; it has ended before the receiver starts.
//! So whatever connects their spans has travelled with the messages.

mod child;
mod exported;
mod journey;
