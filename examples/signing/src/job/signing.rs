use std::cell::Cell;

use diesel::prelude::*;
use diesel::sql_types::BigInt;
use diesel_async::RunQueryDsl;

use super::super::SIGNERS;
use super::super::service::{SignError, sign};
use super::Job;
use super::records::run_copies;
use super::tally::Number;
use crate::crew::Role;
use crate::error::JobError;

/// Every so many-th signing is done once before it is meant, and rolled back: nobody may ever hear
/// of it.
const ROLLBACK_EVERY: i64 = 50;

impl Job {
    /// Signs everything that is not signed yet, and kills each worker once on the way.
    pub(super) async fn sign_all(&self) -> Result<(), JobError> {
        let first = self.first_unsigned().await?;
        let left = self.run.documents - first + 1;
        let kills = [
            (first + left / 3, Role::Consumers),
            (first + left * 2 / 3, Role::Dispatcher),
        ];
        let next = Cell::new(first);
        let signer = async || {
            while next.get() <= self.run.documents {
                let n = next.replace(next.get() + 1);
                for (_, role) in kills.iter().filter(|(at, _)| *at == n) {
                    self.kill(*role).await?;
                }
                if n % ROLLBACK_EVERY == 0 {
                    self.sign_and_roll_back(n).await?;
                }
                self.sign_one(n).await?;
            }
            Ok::<(), JobError>(())
        };
        futures_util::future::try_join_all((0..SIGNERS).map(|_| signer())).await?;
        Ok(())
    }

    /// The first request that is not signed. Signers that were killed may have left a gap; what is
    /// signed behind it is found so.
    async fn first_unsigned(&self) -> Result<i64, JobError> {
        let zero = self.run.request(0);
        let unsigned: Number = self
            .read(async |connection| {
                let query = "
                    SELECT MIN(c.id) + 1 AS value
                    FROM (SELECT $1 AS id UNION ALL SELECT request_id FROM signatures) c
                    WHERE NOT EXISTS (SELECT 1 FROM signatures s WHERE s.request_id = c.id + 1)";
                Ok(diesel::sql_query(query)
                    .bind::<BigInt, _>(zero)
                    .get_result(connection)
                    .await?)
            })
            .await?;
        Ok(unsigned.value - zero)
    }

    /// Signs the `n`-th request, and plans its message's copy in the same transaction. If it is
    /// signed already nothing changes.
    async fn sign_one(&self, n: i64) -> Result<(), JobError> {
        let (document, request) = (self.run.document(n), self.run.request(n));
        let signed = self.transaction(async |tx| {
            let message_id = sign(tx, document, request).await.map_err(undone)?;
            if self.run.has_copy(n) {
                diesel::insert_into(run_copies::table)
                    .values((
                        run_copies::request_id.eq(request),
                        run_copies::message_id.eq(message_id.to_string()),
                        run_copies::enqueued.eq(0),
                    ))
                    .execute(tx)
                    .await?;
            }
            Ok(())
        });
        match signed.await {
            Err(JobError::Undone) => Ok(()),
            signed => signed,
        }
    }

    /// Signs a request that is thought better of: the transaction rolls back, with its message.
    async fn sign_and_roll_back(&self, n: i64) -> Result<(), JobError> {
        let (document, request) = (self.run.document(n), self.run.withdrawn(n));
        let signed = self.transaction(async |tx| {
            sign(tx, document, request).await.map_err(undone)?;
            Err(JobError::Undone)
        });
        match signed.await {
            Err(JobError::Undone) => Ok(()),
            signed => signed,
        }
    }
}

fn undone(error: SignError) -> JobError {
    match error {
        SignError::AlreadySigned => JobError::Undone,
        SignError::Statement(error) => error.into(),
        SignError::Enqueue(error) => error.into(),
        SignError::Transaction(error) => error.into(),
    }
}
