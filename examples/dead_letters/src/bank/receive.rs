use diesel::ExpressionMethods;
use diesel_async::RunQueryDsl;
use posta::Outbox;
use posta::store::Store;

use super::Db;
use super::tables::received;
use crate::posting::PostingReceived;

/// Receives postings, each in a transaction with its message. There is no actor system in this
/// process; the service's dispatches.
pub(super) async fn receive(
    store: &impl Store<Database = Db>,
    postings: &[PostingReceived],
) -> anyhow::Result<()> {
    for posting in postings {
        let mut session = store.begin().await?;
        diesel::insert_into(received::table)
            .values((
                received::account.eq(&posting.account),
                received::number.eq(posting.number),
                received::amount.eq(&posting.amount),
            ))
            .execute(&mut *session)
            .await?;
        Outbox::<Db>::default()
            .enqueue(&mut session, posting)
            .await?;
        session.commit().await?;
    }
    store.notify().await?;
    Ok(())
}
