//! Whose turn it is to write: SQLite lets one transaction write at a time.
//!
//! Inside the process a transaction waits here, in a fair queue, before it asks SQLite: SQLite's
//! own waiting is a poll with growing pauses, in which the unlucky wait for ever, and it holds a
//! thread. What is left for it is contention between processes.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// One semaphore per file that this process has open, by the path that SQLite resolved.
static TURNS: LazyLock<Mutex<HashMap<String, Weak<Semaphore>>>> = LazyLock::new(Mutex::default);

/// The queue of all who write to a file, of every store in this process.
pub(super) fn of(file: &str) -> Arc<Semaphore> {
    let mut turns = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(turn) = turns.get(file).and_then(Weak::upgrade) {
        return turn;
    }
    turns.retain(|_, turn| turn.strong_count() > 0);
    let turn = Arc::new(Semaphore::new(1));
    turns.insert(file.to_owned(), Arc::downgrade(&turn));
    turn
}
