use anyhow::Context;
use diesel_async::SimpleAsyncConnection;
use posta::store::Store;

use super::{AT, Db, LOCK};

diesel::table! {
    /// See bank.sql.
    received (account, number) {
        account -> Text,
        number -> BigInt,
        amount -> Text,
    }
}

diesel::table! {
    /// See bank.sql.
    bookings (account, number) {
        account -> Text,
        number -> BigInt,
        cents -> BigInt,
        balance_cents -> BigInt,
    }
}

diesel::table! {
    /// See bank.sql.
    accounts (account) {
        account -> Text,
        number -> BigInt,
        balance_cents -> BigInt,
        misordered -> BigInt,
    }
}

/// Makes the bank's own tables, unless they are there.
pub(super) async fn create(store: &impl Store<Database = Db>) -> anyhow::Result<()> {
    let mut session = store
        .begin()
        .await
        .context("the database does not answer")?;
    session.batch_execute(LOCK).await?;
    session
        .batch_execute(&include_str!("bank.sql").replace("{at}", AT))
        .await
        .context("the tables cannot be made")?;
    session.commit().await?;
    Ok(())
}
