use std::fmt;
use std::time::Duration;

use super::OperatorError;
use super::wiring::Wiring;
use crate::message::limits::PAYLOAD_BYTES_MAX;
use crate::store::{
    Database, LetterId, LetterState, NewAction, RecordStore, RunId, Store, StoreError,
};

/// Longest name of an operator, in bytes.
pub const WHO_BYTES_MAX: usize = 200;
/// Longest reason of an action, in bytes.
pub const REASON_BYTES_MAX: usize = 2_000;
/// Most letters, runs or actions in one answer.
pub const PAGE_MAX: usize = 1_000;
/// Most letters that one action names; more of them are a selection.
pub const IDS_MAX: usize = 1_000;
/// How long the inbox remembers what was handled, unless said otherwise.
pub const INBOX_RETENTION_DEFAULT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Tries of a transaction that another one was in the way of.
const TRIES_MAX: u32 = 5;

/// All states, for those who look at letters whatever has become of them.
pub(super) const EVERY_STATE: [LetterState; 4] = [
    LetterState::Dead,
    LetterState::Replaying,
    LetterState::Replayed,
    LetterState::Discarded,
];

/// A person who repairs what failed, at one database. Cheap to clone.
///
/// Reading methods see one moment each; a page and the next one see two.
///
/// # Cancel safety
/// Of all methods: dropped before the commit was sent, nothing has happened; dropped while it is
/// under way, its outcome is unknown, and [`Operator::record`] tells.
pub struct Operator<D: Database> {
    pub(super) store: D::Store,
    pub(super) who: String,
    pub(super) inbox_retention: Duration,
    pub(super) wiring: Option<Wiring<D>>,
}

impl<D: Database> Operator<D> {
    /// An operator at a database, without a running process around: what decodes and who handles
    /// what is then known only as far as the tables tell.
    ///
    /// `who` stands beside every action on record; at most [`WHO_BYTES_MAX`] bytes on one line.
    ///
    /// # Errors
    /// When `who` is empty, too long or holds a control character.
    pub fn new(store: D::Store, who: impl Into<String>) -> Result<Self, OperatorError> {
        let who = who.into();
        check_text("who", &who, WHO_BYTES_MAX)?;
        if who.chars().any(char::is_control) {
            return Err(OperatorError::argument(
                "who",
                "it holds a control character",
            ));
        }
        Ok(Self {
            store,
            who,
            inbox_retention: INBOX_RETENTION_DEFAULT,
            wiring: None,
        })
    }

    /// Says how long the inbox remembers what was handled, [`INBOX_RETENTION_DEFAULT`] otherwise:
    /// replaying what is older is flagged in a dry run, since a copy of it would pass as new.
    #[must_use]
    pub fn inbox_retention(mut self, retention: Duration) -> Self {
        self.inbox_retention = retention;
        self
    }

    /// Adds what a running process knows.
    pub(crate) fn wired(mut self, wiring: Wiring<D>) -> Self {
        self.wiring = Some(wiring);
        self
    }

    /// Who acts.
    #[must_use]
    pub fn who(&self) -> &str {
        &self.who
    }

    /// The store: connections, tables and statements.
    #[must_use]
    pub fn store(&self) -> &D::Store {
        &self.store
    }

    /// Largest payload, in bytes.
    pub(super) fn payload_bytes_max(&self) -> usize {
        self.wiring
            .as_ref()
            .map_or(PAYLOAD_BYTES_MAX, |wiring| wiring.payload_bytes_max)
    }

    /// Runs one action's transaction; again, quietly, when another transaction was in its way.
    pub(super) async fn transact<T>(
        &self,
        work: impl AsyncFn(&mut D::Connection) -> Result<T, OperatorError>,
    ) -> Result<T, OperatorError> {
        let mut tries = 1;
        loop {
            let mut session = self.store.begin().await?;
            let outcome = match work(&mut session).await {
                Ok(value) => session.commit().await.map(|()| value).map_err(Into::into),
                Err(error) => {
                    session.rollback().await;
                    Err(error)
                }
            };
            match outcome {
                Err(error) if error.is_contention() && tries < TRIES_MAX => {
                    tokio::time::sleep(Duration::from_millis(20) * tries).await;
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    /// Reads at one moment.
    pub(super) async fn read<T>(
        &self,
        work: impl AsyncFnOnce(&mut D::Connection) -> Result<T, StoreError>,
    ) -> Result<T, OperatorError> {
        let mut session = self.store.begin_read().await?;
        match work(&mut session).await {
            Ok(value) => {
                session.commit().await?;
                Ok(value)
            }
            Err(error) => {
                session.rollback().await;
                Err(error.into())
            }
        }
    }

    /// Writes an action down, in the transaction that does it.
    pub(super) async fn write_down(
        &self,
        connection: &mut D::Connection,
        deed: Deed<'_>,
    ) -> Result<(), OperatorError> {
        let action = NewAction {
            who: self.who.clone(),
            action: deed.action.to_owned(),
            reason: deed.reason.to_owned(),
            letter: deed.letter,
            run: deed.run,
            details: deed.details,
        };
        Ok(self.store.record(connection, &action).await?)
    }

    /// Tells those who run that there may be something to dispatch or to handle. Only latency
    /// depends on it.
    pub(super) async fn nudge(&self) {
        match &self.wiring {
            Some(wiring) => wiring.enqueued.call(),
            None => {
                if let Err(error) = self.store.notify().await {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "running processes were not notified"
                    );
                }
            }
        }
    }
}

/// What is written down of an action.
pub(super) struct Deed<'d> {
    pub(super) action: &'static str,
    pub(super) reason: &'d str,
    pub(super) letter: Option<LetterId>,
    pub(super) run: Option<RunId>,
    pub(super) details: String,
}

/// Checks a text that people read: not empty, not too long, without NUL.
pub(super) fn check_text(
    field: &'static str,
    text: &str,
    bytes_max: usize,
) -> Result<(), OperatorError> {
    if text.trim().is_empty() {
        return Err(OperatorError::argument(field, "it is empty"));
    }
    if text.len() > bytes_max {
        return Err(OperatorError::argument(
            field,
            format!(
                "it has {} bytes, more than the {bytes_max} allowed",
                text.len()
            ),
        ));
    }
    if text.contains('\0') {
        return Err(OperatorError::argument(field, "it holds a NUL"));
    }
    Ok(())
}

/// Checks an action's reason.
pub(super) fn check_reason(reason: &str) -> Result<(), OperatorError> {
    check_text("reason", reason, REASON_BYTES_MAX)
}

impl<D: Database> Clone for Operator<D> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            who: self.who.clone(),
            inbox_retention: self.inbox_retention,
            wiring: self.wiring.clone(),
        }
    }
}

impl<D: Database> fmt::Debug for Operator<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operator")
            .field("database", &D::NAME)
            .field("who", &self.who)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_neither_empty_nor_longer_than_its_limit() {
        assert!(check_reason("fixed in 1.2").is_ok());
        assert!(check_reason(&"x".repeat(REASON_BYTES_MAX)).is_ok());
        for (bad, why) in [
            (String::new(), "reason: it is empty"),
            (" \n".to_owned(), "reason: it is empty"),
            ("a\0b".to_owned(), "reason: it holds a NUL"),
            (
                "é".repeat(1_001),
                "reason: it has 2002 bytes, more than the 2000 allowed",
            ),
        ] {
            assert_eq!(check_reason(&bad).unwrap_err().to_string(), why);
        }
    }
}
