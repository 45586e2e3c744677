use std::time::Duration;

use super::Finding;
use crate::lease::Board;

/// Looks at a lease keeper, while the database answers.
pub(super) fn look(board: &Board, ttl: Duration) -> Finding {
    match board.ticked() {
        // Its first tick has this long too: what was found before it is the same difference.
        None => Finding::Different("it has not ticked, and the database answers".to_owned()),
        Some(ticked) if ticked.elapsed() > ttl => Finding::Different(
            "it has not ticked for a lease period, and the database answers".to_owned(),
        ),
        Some(ticked) => Finding::Well(format!("ticked {:?} ago", ticked.elapsed())),
    }
}
