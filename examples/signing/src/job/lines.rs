//! Lines drawn under each document, to know when everything before them has been delivered.
//!
//! A line is a message with the document's key. In its outbox lane and its queue it stands behind
//! all that was enqueued for the document before, so when it is handled, all that has been
//! delivered: handled, or refused as a copy. What the consumer enqueued meanwhile for the next one
//! is followed by a line in the same way.

use diesel::prelude::*;
use diesel_async::RunQueryDsl;
use posta::{Consumer, Failure, Message, Tx};
use serde::{Deserialize, Serialize};

use super::super::Db;
use super::super::service::{self, documents};
use super::records::run_lines;
use super::{Job, LOOK_INTERVAL};
use crate::error::JobError;

/// Lines drawn in one transaction.
const LINES_AT_ONCE: i64 = 200;

/// All signatures of the document have been enqueued.
#[derive(Debug, Serialize, Deserialize, Message)]
#[message(
    type = "signing.line",
    version = 1,
    key = document_id,
    handler = notified,
    consumer = "notifications"
)]
struct LineDrawn {
    document_id: i64,
    round: i64,
}

/// All notifications of the document have been enqueued.
#[derive(Debug, Serialize, Deserialize, Message)]
#[message(
    type = "signing.line.notified",
    version = 1,
    key = document_id,
    handler = mailed,
    consumer = "mailbox"
)]
struct LineNotified {
    document_id: i64,
    round: i64,
}

async fn notified(line: LineDrawn, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
    let LineDrawn { document_id, round } = line;
    diesel::update(run_lines::table.find((document_id, round)))
        .set(run_lines::notified.eq(run_lines::notified + 1))
        .execute(tx)
        .await?;
    tx.enqueue(&LineNotified { document_id, round })?;
    Ok(())
}

async fn mailed(line: LineNotified, tx: &mut Tx<'_, Db>) -> Result<(), Failure> {
    diesel::update(run_lines::table.find((line.document_id, line.round)))
        .set(run_lines::mailed.eq(run_lines::mailed + 1))
        .execute(tx)
        .await?;
    Ok(())
}

/// The service's consumers, which see the lines too.
pub(super) fn consumers() -> [Consumer<Db>; 2] {
    [
        service::notifications_consumer().handles::<LineDrawn>(),
        service::mailbox_consumer().handles::<LineNotified>(),
    ]
}

impl Job {
    /// Sends a first line all the way, of no document, so that queues exist and workers work before
    /// the clock is looked at.
    pub(super) async fn warm_up(&self) -> Result<(), JobError> {
        self.draw(&[self.run.request(0)], 0).await?;
        self.until_lines_are_through(0).await
    }

    /// Draws a line under each document that has none of this round yet.
    pub(super) async fn draw_lines(&self, round: i64) -> Result<(), JobError> {
        loop {
            let without: Vec<i64> = self
                .read(async |connection| {
                    let drawn = run_lines::table.filter(run_lines::round.eq(round));
                    let without = documents::table
                        .filter(documents::id.ne_all(drawn.select(run_lines::document_id)));
                    Ok(without
                        .select(documents::id)
                        .limit(LINES_AT_ONCE)
                        .load(connection)
                        .await?)
                })
                .await?;
            if without.is_empty() {
                return Ok(());
            }
            self.draw(&without, round).await?;
        }
    }

    async fn draw(&self, documents: &[i64], round: i64) -> Result<(), JobError> {
        self.transaction(async |tx| {
            for document_id in documents {
                let new = diesel::insert_into(run_lines::table)
                    .values((
                        run_lines::document_id.eq(document_id),
                        run_lines::round.eq(round),
                        run_lines::notified.eq(0),
                        run_lines::mailed.eq(0),
                    ))
                    .on_conflict_do_nothing()
                    .execute(tx)
                    .await?;
                if new == 1 {
                    tx.enqueue(&LineDrawn {
                        document_id: *document_id,
                        round,
                    })?;
                }
            }
            Ok(())
        })
        .await
    }

    /// Waits until all lines of a round have come through both consumers.
    pub(super) async fn until_lines_are_through(&self, round: i64) -> Result<(), JobError> {
        loop {
            let missing: i64 = self
                .read(async |connection| {
                    let missing = run_lines::table.filter(run_lines::round.eq(round));
                    let missing = missing.filter(run_lines::mailed.eq(0)).count();
                    Ok(missing.get_result(connection).await?)
                })
                .await?;
            if missing == 0 {
                return Ok(());
            }
            tokio::time::sleep(LOOK_INTERVAL / 4).await;
        }
    }
}
