//! The command line, as it is run by hand: the built binary on a real backlog.

mod answers;
mod changes;
mod errors;
mod hostile;
mod posta;
#[cfg(unix)]
mod terminal;
