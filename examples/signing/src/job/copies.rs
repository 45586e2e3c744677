use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use diesel_async::RunQueryDsl;
use posta::outbox::EnqueueError;
use posta::{Envelope, Message, MessageId};

use super::super::SAME_MESSAGE;
use super::super::service::{DocumentSigned, signatures};
use super::records::run_copies;
use super::tally::sql;
use super::{Job, LOOK_INTERVAL};
use crate::error::JobError;

/// A message that has left the outbox and is to be enqueued again.
#[derive(Debug, QueryableByName)]
struct Departed {
    #[diesel(sql_type = BigInt)]
    request_id: i64,
    #[diesel(sql_type = Text)]
    message_id: String,
}

impl Job {
    /// Enqueues the planned copies, each after its original has left the outbox, until all are
    /// enqueued.
    pub(super) async fn copy_all(&self) -> Result<(), JobError> {
        let planned = self.run.documents * self.run.duplicates / 100;
        while self.copy_departed().await? < planned {
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    /// Enqueues copies of what has left the outbox, on record in the same transaction; says how
    /// many copies there are by now.
    async fn copy_departed(&self) -> Result<i64, JobError> {
        let departed = sql(&format!(
            "SELECT c.request_id, c.message_id FROM run_copies c
             WHERE c.enqueued = 0
             AND NOT EXISTS (SELECT 1 FROM {{posta}}outbox o WHERE {SAME_MESSAGE})
             LIMIT 100"
        ));
        self.transaction(async |tx| {
            let departed: Vec<Departed> = diesel::sql_query(&departed).load(tx).await?;
            for copy in departed {
                let planned = run_copies::table
                    .find(copy.request_id)
                    .filter(run_copies::enqueued.eq(0));
                let taken = diesel::update(planned)
                    .set(run_copies::enqueued.eq(1))
                    .execute(tx)
                    .await?;
                if taken == 0 {
                    continue;
                }
                let message = signatures::table
                    .find(copy.request_id)
                    .select((
                        signatures::document_id,
                        signatures::request_id,
                        signatures::number,
                    ))
                    .first(tx)
                    .await?;
                tx.enqueue_envelope(copy_of(&message, &copy.message_id)?)?;
            }
            let copies = run_copies::table.filter(run_copies::enqueued.eq(1)).count();
            Ok(copies.get_result(tx).await?)
        })
        .await
    }
}

/// The message's envelope once more, under the id that it was given the first time.
fn copy_of(message: &DocumentSigned, message_id: &str) -> Result<Envelope, JobError> {
    let mut envelope = Envelope::of(message).map_err(|source| EnqueueError::Message {
        message_type: DocumentSigned::TYPE.to_owned(),
        source,
    })?;
    envelope.id = message_id
        .parse::<MessageId>()
        .expect("the run wrote a message id");
    Ok(envelope)
}
