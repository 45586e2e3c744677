use time::OffsetDateTime;

use super::operator::{Deed, check_reason};
use super::selection::utc;
use super::{Operator, OperatorError};
use crate::store::{
    Database, RedispatchFilter, RedispatchPreview, RedispatchStep, RedispatchStore,
};

/// Rows that go out again in one transaction.
const STEP_ROWS: usize = 1_000;

/// Which of the kept rows that were dispatched; every part that is given must hold.
#[derive(Clone, Debug, Default)]
pub struct RedispatchSelection {
    /// Dispatched at this time or later.
    pub from: Option<OffsetDateTime>,
    /// Dispatched before this time; before now, at the latest.
    pub before: Option<OffsetDateTime>,
    /// Only this message type.
    pub message_type: Option<String>,
    /// Only this ordering key.
    pub key: Option<String>,
}

/// Kept rows that are to go out again: looked at first, then moved step by step.
///
/// Its cut-off is frozen: what is dispatched from now on, its own rows among it, is not in it. When
/// it breaks off, the steps so far have happened; another one with the same times
/// ([`Redispatch::begins_at`], [`Redispatch::cut_off`]) does the rest.
#[derive(Debug)]
pub struct Redispatch<D: Database> {
    operator: Operator<D>,
    filter: RedispatchFilter,
    reason: String,
    rows: u64,
    /// Where the last step ended.
    after: Option<i64>,
}

impl<D: Database> Operator<D> {
    /// Selects kept rows of the outbox to go out again, in the order in which they were enqueued,
    /// with their ids; changes nothing yet. The inbox refuses what was handled, so it repairs a
    /// broker that lost its disk, or a queue that was deleted with messages in it.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn redispatch(
        &self,
        selection: &RedispatchSelection,
        reason: &str,
    ) -> Result<Redispatch<D>, OperatorError> {
        check_reason(reason)?;
        let now = self
            .read(async |connection| self.store.now(connection).await)
            .await?;
        Ok(Redispatch {
            operator: self.clone(),
            filter: RedispatchFilter {
                from: selection.from,
                before: selection.before.map_or(now, |before| before.min(now)),
                message_type: selection.message_type.clone(),
                key: selection.key.clone(),
            },
            reason: reason.to_owned(),
            rows: 0,
            after: None,
        })
    }
}

impl<D: Database> Redispatch<D> {
    /// Only rows that were dispatched before this time go out again.
    #[must_use]
    pub fn cut_off(&self) -> OffsetDateTime {
        self.filter.before
    }

    /// Only rows that were dispatched at this time or later go out again; however early, if `None`.
    #[must_use]
    pub fn begins_at(&self) -> Option<OffsetDateTime> {
        self.filter.from
    }

    /// What it would do: rows, keys, and how many of the rows each consumer has not handled, where
    /// its inbox is in this database.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn preview(&self) -> Result<RedispatchPreview, OperatorError> {
        let (operator, filter) = (&self.operator, &self.filter);
        operator
            .read(async |connection| operator.store.preview_redispatch(connection, filter).await)
            .await
    }

    /// Moves the next 1,000 rows in one transaction, and writes it down; returns how many there
    /// were: 0 when there is none left.
    ///
    /// # Errors
    /// When the database did not do it; the step may be tried again.
    pub async fn step(&mut self) -> Result<usize, OperatorError> {
        let mut moved = self.step_after(self.after).await?;
        if moved.rows == 0 && self.after.take().is_some() {
            // What was dispatched before the cut-off, and committed behind the steps so far.
            moved = self.step_after(None).await?;
        }
        self.after = moved.last;
        if moved.rows > 0 {
            self.rows += moved.rows as u64;
            self.operator.nudge().await;
        }
        Ok(moved.rows)
    }

    async fn step_after(&self, after: Option<i64>) -> Result<RedispatchStep, OperatorError> {
        let (operator, filter) = (&self.operator, &self.filter);
        operator
            .transact(async |connection| {
                let moved = operator
                    .store
                    .redispatch(connection, filter, after, STEP_ROWS)
                    .await?;
                if moved.rows > 0 {
                    let deed = Deed {
                        action: "redispatch",
                        reason: &self.reason,
                        letter: None,
                        run: None,
                        details: format!("{} rows: {}", moved.rows, in_words(filter)),
                    };
                    operator.write_down(connection, deed).await?;
                }
                Ok(moved)
            })
            .await
    }

    /// Takes all steps; `progress` hears the number of rows so far after each. Returns how many
    /// rows went.
    ///
    /// # Errors
    /// When a step failed; those before it have happened.
    pub async fn finish(&mut self, mut progress: impl FnMut(u64)) -> Result<u64, OperatorError> {
        while self.step().await? > 0 {
            progress(self.rows);
        }
        Ok(self.rows)
    }
}

fn in_words(filter: &RedispatchFilter) -> String {
    let mut words = String::new();
    if let Some(from) = filter.from {
        words = format!("dispatched from {}, ", utc(from));
    }
    words = format!("{words}dispatched before {}", utc(filter.before));
    for (name, text) in [("type", &filter.message_type), ("key", &filter.key)] {
        if let Some(text) = text {
            words = format!("{words}, {name} {text:?}");
        }
    }
    words
}
