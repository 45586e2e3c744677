//! Counting, in SQL over the tables alone: the service's for what should be and what is, Posta's
//! for what went between.

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel_async::RunQueryDsl;
use posta::Database;

use super::super::{Db, POSTA};
use super::{Connection, Job, LOOK_INTERVAL};
use crate::error::JobError;
use crate::flags::shown;
use crate::ledger::{Hop, Latency, Ledger};
use crate::progress::Reached;

/// Notifications of this run: its ids lie between $1 and $2, and those of other runs on the same
/// broker do not.
const OURS: &str = "request_id BETWEEN $1 AND $2";

/// How many of each document's effects came after that of a later cause. A cause's first effect
/// counts; `place` is the order of the effects, which a row lock on the document made, and `number`
/// that of the causes.
const OUT_OF_ORDER: &str = "
    SELECT COUNT(*) AS value FROM (
        SELECT number, MAX(number) OVER (
            PARTITION BY document_id ORDER BY place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ) AS before
        FROM ({effects}) e
    ) o WHERE before > number";

/// One number of a query.
#[derive(Debug, QueryableByName)]
pub(super) struct Number {
    #[diesel(sql_type = BigInt)]
    pub(super) value: i64,
}

/// A statement on Posta's tables as they are named here.
pub(super) fn sql(statement: &str) -> String {
    statement.replace("{posta}", POSTA)
}

/// One transaction in which everything is counted.
struct Count<'c> {
    connection: &'c mut Connection,
    ids: (i64, i64),
}

impl Count<'_> {
    /// The number that a query of this run's ids gives.
    async fn of(&mut self, statement: &str) -> Result<i64, JobError> {
        let statement = sql(&statement.replace("{ours}", OURS));
        let query = diesel::sql_query(statement)
            .bind::<BigInt, _>(self.ids.0)
            .bind::<BigInt, _>(self.ids.1);
        Ok(query.get_result::<Number>(self.connection).await?.value)
    }

    /// The number that a query about one message type or consumer gives.
    async fn about(&mut self, name: &str, statement: &str) -> Result<i64, JobError> {
        let query = diesel::sql_query(sql(statement)).bind::<Text, _>(name);
        Ok(query.get_result::<Number>(self.connection).await?.value)
    }

    /// What Posta's tables say of one message type and the consumer that takes it.
    async fn hop(&mut self, message_type: &str, consumer: &str) -> Result<Hop, JobError> {
        let dispatched = self
            .about(
                message_type,
                "SELECT COUNT(*) AS value FROM {posta}dispatched WHERE message_type = $1",
            )
            .await?;
        let waiting = self
            .about(
                message_type,
                "SELECT COUNT(*) AS value FROM {posta}outbox WHERE message_type = $1",
            )
            .await?;
        let dead = "
            SELECT COUNT(*) AS value FROM {posta}dead_letter
            WHERE consumer IS NULL AND message_type = $1";
        let dead = self.about(message_type, dead).await?;
        let messages = "
            SELECT COUNT(DISTINCT message_id) AS value FROM {posta}dispatched
            WHERE message_type = $1";
        let messages = self.about(message_type, messages).await?;
        let handled = sql("
            SELECT COUNT(*) AS value FROM {posta}inbox WHERE consumer = $1
            AND message_id IN (SELECT message_id FROM {posta}dispatched WHERE message_type = $2)");
        let handled = diesel::sql_query(handled)
            .bind::<Text, _>(consumer)
            .bind::<Text, _>(message_type);
        let handled = handled.get_result::<Number>(self.connection).await?.value;
        let copies = dispatched - messages;
        Ok(Hop {
            enqueued: waiting + dispatched + dead,
            dispatched,
            delivered: handled + copies,
            duplicates_refused: copies,
            ..Hop::default()
        })
    }

    /// Signatures, against notifications.
    async fn signed(&mut self) -> Result<Hop, JobError> {
        let mut hop = self.hop("document.signed", "notifications").await?;
        hop.caused = self
            .of("SELECT COUNT(*) AS value FROM signatures WHERE {ours}")
            .await?;
        hop.effects = self
            .of("SELECT COUNT(*) AS value FROM notifications WHERE {ours}")
            .await?;
        let distinct = "SELECT COUNT(DISTINCT request_id) AS value FROM notifications WHERE {ours}";
        hop.doubled = hop.effects - self.of(distinct).await?;
        let lost = "
            SELECT COUNT(*) AS value FROM signatures WHERE {ours}
            AND request_id NOT IN (SELECT request_id FROM notifications)";
        hop.lost = self.of(lost).await?;
        let unfounded = "
            SELECT COUNT(*) AS value FROM notifications n WHERE {ours} AND NOT EXISTS (
                SELECT 1 FROM signatures s
                WHERE s.request_id = n.request_id
                AND s.document_id = n.document_id AND s.number = n.number
            )";
        hop.unfounded = self.of(unfounded).await?;
        let effects = "
            SELECT n.document_id, MIN(n.entry) AS place, MIN(s.number) AS number
            FROM notifications n JOIN signatures s ON s.request_id = n.request_id
            WHERE n.{ours} GROUP BY n.document_id, n.request_id";
        hop.out_of_order = self.of(&OUT_OF_ORDER.replace("{effects}", effects)).await?;
        Ok(refusing_only_what_had_no_effect(hop))
    }

    /// Notifications, against mails.
    async fn created(&mut self) -> Result<Hop, JobError> {
        let mut hop = self.hop("notification.created", "mailbox").await?;
        hop.caused = self
            .of("SELECT COUNT(*) AS value FROM notifications WHERE {ours}")
            .await?;
        hop.effects = self
            .of("SELECT COUNT(*) AS value FROM mails WHERE {ours}")
            .await?;
        let distinct = "
            SELECT COUNT(*) AS value
            FROM (SELECT DISTINCT document_id, entry FROM mails WHERE {ours}) m";
        hop.doubled = hop.effects - self.of(distinct).await?;
        let same =
            "m.document_id = n.document_id AND m.entry = n.entry AND m.request_id = n.request_id";
        let lost = "
            SELECT COUNT(*) AS value FROM notifications n WHERE {ours}
            AND NOT EXISTS (SELECT 1 FROM mails m WHERE {same})";
        hop.lost = self.of(&lost.replace("{same}", same)).await?;
        let unfounded = "
            SELECT COUNT(*) AS value FROM mails m WHERE {ours}
            AND NOT EXISTS (SELECT 1 FROM notifications n WHERE {same})";
        hop.unfounded = self.of(&unfounded.replace("{same}", same)).await?;
        let effects = "
            SELECT document_id, MIN(place) AS place, entry AS number
            FROM mails WHERE {ours} GROUP BY document_id, entry";
        hop.out_of_order = self.of(&OUT_OF_ORDER.replace("{effects}", effects)).await?;
        Ok(refusing_only_what_had_no_effect(hop))
    }

    /// Microseconds from each signature to its notification.
    async fn latency(&mut self) -> Result<Latency, JobError> {
        let query = "
            SELECT n.written_at - s.signed_at AS value
            FROM notifications n JOIN signatures s ON s.request_id = n.request_id";
        let micros: Vec<Number> = diesel::sql_query(query).load(self.connection).await?;
        Ok(Latency::of(
            micros.into_iter().map(|number| number.value).collect(),
        ))
    }

    /// Rows that would still become something.
    async fn left(&mut self) -> Result<i64, JobError> {
        let mut left = 0;
        for table in ["outbox", "queue", "retry", "dead_letter"] {
            left += self
                .of(&format!(
                    "SELECT COUNT(*) AS value FROM {{posta}}{table} WHERE $1 <= $2"
                ))
                .await?;
        }
        Ok(left)
    }
}

/// A copy that took effect was not refused.
fn refusing_only_what_had_no_effect(hop: Hop) -> Hop {
    Hop {
        duplicates_refused: (hop.duplicates_refused - hop.doubled).max(0),
        ..hop
    }
}

impl Job {
    /// The run's ledger.
    pub(super) async fn tally(&self, broker: &str) -> Result<Ledger, JobError> {
        let title = match broker {
            "database" => format!("{}, and the same database as the broker", Db::NAME),
            broker => format!("{}, and the broker {}", Db::NAME, shown(broker)),
        };
        self.read(async |connection| {
            let mut count = Count {
                connection,
                ids: self.run.ids(),
            };
            let copies = "SELECT COUNT(*) AS value FROM run_copies WHERE enqueued = 1 AND {ours}";
            let foreign = "SELECT COUNT(*) AS value FROM notifications WHERE NOT ({ours})";
            Ok(Ledger {
                title: title.clone(),
                documents: self.run.documents,
                keys: self.run.keys,
                seed: self.run.seed,
                signed: count.signed().await?,
                created: count.created().await?,
                copies: count.of(copies).await?,
                left: count.left().await?,
                foreign: count.of(foreign).await?,
                kills: count
                    .of("SELECT kills AS value FROM run WHERE $1 <= $2")
                    .await?,
                latency: count.latency().await?,
                stuck: None,
            })
        })
        .await
    }

    /// How far the run has come.
    pub(super) async fn reached(&self) -> Result<Reached, JobError> {
        self.read_once(async |connection| {
            let mut count = Count {
                connection,
                ids: self.run.ids(),
            };
            let rest = "
                    SELECT (SELECT COUNT(*) FROM run_copies WHERE enqueued = 1)
                         + (SELECT COUNT(*) FROM run_lines)
                         + (SELECT CAST(COALESCE(SUM(notified + mailed), 0) AS BIGINT) FROM run_lines)
                         + (SELECT COUNT(*) FROM {posta}dispatched) AS value
                    WHERE $1 <= $2";
            Ok(Reached {
                signed: count
                    .of("SELECT COUNT(*) AS value FROM signatures WHERE {ours}")
                    .await?
                    .unsigned_abs(),
                notified: count
                    .of("SELECT COUNT(*) AS value FROM notifications WHERE {ours}")
                    .await?
                    .unsigned_abs(),
                mailed: count
                    .of("SELECT COUNT(*) AS value FROM mails WHERE {ours}")
                    .await?
                    .unsigned_abs(),
                rest: count.of(rest).await?.unsigned_abs(),
            })
        })
        .await
    }

    /// Waits until nothing is in the outbox.
    pub(super) async fn until_outbox_is_empty(&self) -> Result<(), JobError> {
        loop {
            let waiting = self
                .read(async |connection| {
                    let mut count = Count {
                        connection,
                        ids: self.run.ids(),
                    };
                    count
                        .of("SELECT COUNT(*) AS value FROM {posta}outbox WHERE $1 <= $2")
                        .await
                })
                .await?;
            if waiting == 0 {
                return Ok(());
            }
            tokio::time::sleep(LOOK_INTERVAL / 4).await;
        }
    }
}
