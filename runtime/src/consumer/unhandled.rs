//! Messages of a type that this process has no handler for: a rolling deployment may be about to
//! bring it. They wait in the retry table, their keys behind them, and waiting is no try.

use std::time::Duration;

use super::aside::Death;
use super::disturbance::Interruption;
use super::due::Tried;
use super::partition::Partition;
use crate::dead_letter::Reason;
use crate::message::Envelope;
use crate::store::{Database, Fence, HeldRow, NewHold, Postponement};

/// Between two looks at such a message, at least.
const LOOK_MIN: Duration = Duration::from_millis(100);

/// ... and at most.
const LOOK_MAX: Duration = Duration::from_secs(30);

impl<D: Database> Partition<D> {
    /// What becomes of such a delivery. Its grace begins at the first look at it in the table.
    pub(super) fn unhandled(&self, envelope: &Envelope) -> NewHold {
        NewHold {
            delay: Some(LOOK_MIN),
            ..self.untried(envelope)
        }
    }

    /// A look at such a message that is due: it waits for as long again as it has waited already, at
    /// most [`LOOK_MAX`]; when its grace is over it is set aside.
    pub(super) async fn without_handler(
        &self,
        fence: &Fence,
        row: &HeldRow,
    ) -> Result<Tried, Interruption> {
        let waited = row.unhandled_for.unwrap_or_default();
        if waited >= self.unknown_type_grace {
            let message_type = row.envelope.message_type.as_str();
            let death = Death {
                reason: Reason::UnknownType,
                error: format!("no handler for the message type {message_type:?} in this process"),
                attempts: row.attempts,
            };
            return Ok(self.set_aside(fence, row, death).await?);
        }
        let left = self.unknown_type_grace - waited;
        let delay = waited.clamp(LOOK_MIN, LOOK_MAX).min(left);
        self.postpone(fence, row, Postponement { error: None, delay })
            .await
    }
}
