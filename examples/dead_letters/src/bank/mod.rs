//! Everything that touches the database, written for one: `Db` is what the file above says.

mod books;
mod count;
mod receive;
mod serve;
mod story;
mod tables;

use std::time::Duration;

use anyhow::Context;
use posta::store::{Connect, MigrationStore, Store};
use posta::{Database, Tables};

use super::{AT, Db, LOCK};
pub(crate) use count::look;
pub(crate) use serve::serve;
pub(crate) use story::tell;

/// The store of the bank's database, without an actor system.
fn open(url: &str) -> anyhow::Result<<Db as Database>::Store> {
    let connect = Connect {
        tables: Tables::default(),
        connections_max: 4,
        timeout: Duration::from_secs(10),
        transaction_pooler: false,
    };
    <Db as Database>::Store::connect(url, &connect).context("the database cannot be used")
}

/// The same, with Posta's tables and the bank's own in it.
async fn prepare(url: &str) -> anyhow::Result<<Db as Database>::Store> {
    let store = open(url)?;
    store.migrate().await?;
    tables::create(&store).await?;
    Ok(store)
}

/// Whether a store can be read.
async fn check(store: &impl Store<Database = Db>) -> anyhow::Result<()> {
    store
        .check_migrations()
        .await
        .context("the story was not told here: cargo run -p dead_letters")
}
