//! The examples as their users run them: real processes, real servers, killed in the middle.

mod dead_letters;
mod orders;
mod program;
mod webhooks;
