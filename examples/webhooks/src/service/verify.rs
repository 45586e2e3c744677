use std::collections::{BTreeMap, BTreeSet};

use diesel::QueryDsl;
use diesel_async::RunQueryDsl;
use posta::store::Store;

use super::Db;
use super::tables::{archive, deliveries, statistics};
use crate::{Chain, Delivery, Report, Tally, expected};

/// Compares the tables with what was sent, in the order in which it was sent, repetitions included.
///
/// Reads in one transaction, so the tables are seen at one moment, whatever goes on. Memory: every
/// body twice.
///
/// # Errors
/// When the database does not answer, or a body that was sent is none of GitHub's.
pub async fn verify(
    store: &impl Store<Database = Db>,
    sent: &[Delivery],
    ignored: &BTreeSet<String>,
) -> anyhow::Result<Report> {
    let mut session = store.begin().await?;
    let connection = &mut *session;
    let stored: i64 = deliveries::table.count().get_result(connection).await?;
    let bodies: Vec<(String, Vec<u8>)> = archive::table
        .select((archive::delivery, archive::body))
        .load(connection)
        .await?;
    let rows: Vec<(String, i64, String, Vec<u8>)> = statistics::table.load(connection).await?;
    session.commit().await?;
    let tallies: BTreeMap<String, Tally> = rows
        .into_iter()
        .map(|(repository, deliveries, last_event, chain)| {
            // What is no chain equals no expected one.
            let chain = Chain::from_bytes(&chain).unwrap_or(Chain::EMPTY);
            (
                repository,
                Tally {
                    deliveries,
                    last_event,
                    chain,
                },
            )
        })
        .collect();
    let expected = expected(sent, ignored)?;
    Ok(Report::compare(sent, stored, &bodies, &expected, &tallies))
}
