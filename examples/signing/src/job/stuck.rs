use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};
use diesel_async::RunQueryDsl;
use posta::supervision::ChildState;

use super::Job;
use super::tally::sql;
use crate::error::JobError;

/// Messages that wait in one place.
#[derive(Debug, QueryableByName)]
struct Waiting {
    #[diesel(sql_type = Text)]
    place: String,
    #[diesel(sql_type = Text)]
    message_type: String,
    #[diesel(sql_type = BigInt)]
    rows: i64,
    #[diesel(sql_type = Nullable<Text>)]
    error: Option<String>,
}

const WAITING: &str = "
    SELECT 'outbox' AS place, message_type, COUNT(*) AS rows, MAX(last_error) AS error
        FROM {posta}outbox GROUP BY message_type
    UNION ALL
    SELECT 'queue of ' || consumer, message_type, COUNT(*), NULL
        FROM {posta}queue GROUP BY consumer, message_type
    UNION ALL
    SELECT 'retry table of ' || consumer, message_type, COUNT(*), MAX(last_error)
        FROM {posta}retry GROUP BY consumer, message_type
    UNION ALL
    SELECT 'dead letters of ' || COALESCE(consumer, 'the outbox'), COALESCE(message_type, '?'),
           COUNT(*), MAX(error)
        FROM {posta}dead_letter GROUP BY consumer, message_type";

impl Job {
    /// What waits where, and which actors of this process miss what.
    pub(super) async fn what_is_stuck(&self) -> String {
        let mut lines = vec![format!(
            "nothing has moved for {} s:",
            self.patience.as_secs()
        )];
        match self.waiting().await {
            Ok(waiting) if waiting.is_empty() => {
                lines.push("outbox, queue and retry table are empty".to_owned())
            }
            Ok(waiting) => lines.extend(waiting.into_iter().map(|waiting| {
                let Waiting {
                    place,
                    message_type,
                    rows,
                    error,
                } = waiting;
                let error = error
                    .map(|error| format!(", last error: {error}"))
                    .unwrap_or_default();
                format!("{place}: {rows} of {message_type}{error}")
            })),
            Err(error) => lines.push(format!("the database: {}", error.chain())),
        }
        match self.posta.status().await {
            Ok(status) => lines.push(format!(
                "outbox: {} rows, {} of them on hold, the oldest for {:?}",
                status.outbox.rows,
                status.outbox.held,
                status.oldest_pending()
            )),
            Err(error) => lines.push(format!("status: {error}")),
        }
        for (name, child) in self.posta.registry().children() {
            if !matches!(child.state, ChildState::Running) {
                lines.push(format!("actor {name}: {:?}", child.state));
            }
        }
        lines.join("\n    ")
    }

    async fn waiting(&self) -> Result<Vec<Waiting>, JobError> {
        let query = sql(WAITING);
        self.read_once(async |connection| Ok(diesel::sql_query(&query).load(connection).await?))
            .await
    }
}
