use std::collections::BTreeSet;

use diesel::{ExpressionMethods, OptionalExtension, QueryDsl};
use diesel_async::RunQueryDsl;
use posta::{Consumer, DeliveryInfo, Failure, Tx};

use super::Db;
use super::tables::statistics;
use crate::message::{EVENT, header};
use crate::{Chain, Tally, WebhookReceived};

/// The consumer `statistics`: count, last event and chain of each repository.
///
/// It reads a row, computes, and writes it back, with no lock and no thought of other processes:
/// all messages of one repository are handled one after the other, each once, in the order in which
/// they were taken in. The chain would show it if not. A consumer with state of its own is a
/// struct.
#[derive(Clone, Debug, Consumer)]
#[consumer(name = "statistics", handles(WebhookReceived => count))]
pub struct Statistics {
    /// Events that are not counted.
    pub ignored: BTreeSet<String>,
}

impl Statistics {
    async fn count(
        &self,
        message: WebhookReceived,
        tx: &mut Tx<'_, Db>,
        delivery: DeliveryInfo,
    ) -> Result<(), Failure> {
        let event = header(&delivery.headers, EVENT)?;
        let Some(repository) = message.repository else {
            return Ok(());
        };
        if self.ignored.contains(event) {
            return Ok(());
        }
        let before = statistics::table
            .find(&repository)
            .select((
                statistics::deliveries,
                statistics::last_event,
                statistics::chain,
            ))
            .first::<(i64, String, Vec<u8>)>(tx)
            .await
            .optional()?;
        let before = before.map(tally).transpose()?;
        let tally = Tally::add(before, delivery.id.as_uuid(), event);
        let counted = (
            statistics::deliveries.eq(tally.deliveries),
            statistics::last_event.eq(&tally.last_event),
            statistics::chain.eq(tally.chain.as_bytes()),
        );
        diesel::insert_into(statistics::table)
            .values((statistics::repository.eq(&repository), counted))
            .on_conflict(statistics::repository)
            .do_update()
            .set(counted)
            .execute(tx)
            .await?;
        Ok(())
    }
}

/// A row's columns as a tally.
pub(super) fn tally(
    (deliveries, last_event, chain): (i64, String, Vec<u8>),
) -> Result<Tally, Failure> {
    let chain = Chain::from_bytes(&chain).ok_or_else(|| Failure::new("a stored chain is none"))?;
    Ok(Tally {
        deliveries,
        last_event,
        chain,
    })
}
