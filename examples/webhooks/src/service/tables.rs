use std::time::Duration;

use anyhow::Context;
use diesel::QueryDsl;
use diesel_async::{RunQueryDsl, SimpleAsyncConnection};
use posta::store::{Connect, Store};
use posta::{Database, Posta, Tables};

use super::{Db, TABLES};

diesel::table! {
    /// What was taken in: a delivery id that is here is answered as done.
    deliveries (delivery) {
        delivery -> Text,
        event -> Text,
        repository -> Nullable<Text>,
    }
}

diesel::table! {
    /// The bodies, as GitHub sent them.
    archive (delivery) {
        delivery -> Text,
        event -> Text,
        signature -> Text,
        body -> Binary,
    }
}

diesel::table! {
    /// What is known of each repository.
    statistics (repository) {
        repository -> Text,
        deliveries -> BigInt,
        last_event -> Text,
        chain -> Binary,
    }
}

/// The store of the database that a URL names: the way to it without an actor system.
///
/// # Errors
/// When the URL is not one of this database's.
pub fn open(url: &str) -> anyhow::Result<<Db as Database>::Store> {
    let connect = Connect {
        tables: Tables::default(),
        connections_max: 4,
        timeout: Duration::from_secs(10),
        transaction_pooler: false,
    };
    <Db as Database>::Store::connect(url, &connect).context("the database cannot be used")
}

/// Makes the service's own tables, unless they are there. Before the consumers start: they write to
/// them.
pub(super) async fn create(store: &impl Store<Database = Db>) -> anyhow::Result<()> {
    let mut session = store
        .begin()
        .await
        .context("the database does not answer")?;
    session
        .batch_execute(TABLES)
        .await
        .context("the tables cannot be made")?;
    session.commit().await?;
    Ok(())
}

/// What the statistics say: repository, deliveries, last event.
pub(super) async fn repositories(posta: &Posta<Db>) -> anyhow::Result<Vec<(String, i64, String)>> {
    let columns = (
        statistics::repository,
        statistics::deliveries,
        statistics::last_event,
    );
    posta
        .transaction(async |tx| {
            let rows = statistics::table
                .select(columns)
                .order(statistics::repository);
            Ok(rows.load(tx).await?)
        })
        .await
}
