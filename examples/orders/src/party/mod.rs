//! Everything that touches a database, written for one: `Db` is what the file above says.

mod billing;
mod inventory;
mod place;
mod report;
mod shop;

use std::time::Duration;

use anyhow::Context;
use diesel_async::SimpleAsyncConnection;
use posta::store::{Connect, Store};
use posta::{Broker, Database, Posta, Tables};

use super::{AT, Db, LOCK};
use crate::role::{Place, Role};
pub(crate) use place::place;
pub(crate) use report::report;

/// Runs a party until SIGTERM or SIGINT.
pub(crate) async fn run(role: Role, place: &Place, stock: i64) -> anyhow::Result<()> {
    let broker = Broker::from_url(&place.broker).context("the broker cannot be used")?;
    let store = open(&place.database)?;
    create(&store, role).await?;
    if role == Role::Inventory {
        inventory::fill(&store, stock).await?;
    }
    let posta = Posta::<Db>::builder(&place.database, broker)
        .migrate_at_start(true)
        .lease_ttl(Duration::from_secs(place.lease));
    let posta = match role {
        Role::Shop => posta.consumer(shop::Shop),
        // Two orders may want the same items in another sequence. A transaction that takes one item
        // only waits for nobody who waits for it.
        Role::Inventory => posta.consumer(inventory::Inventory).consume_batch(1),
        Role::Billing => posta.consumer(billing::Billing),
    };
    let posta = posta.start().await.context("posta did not start")?;
    println!("orders: {role} runs");
    posta.run_until_signal().await?;
    println!("orders: {role} has ended");
    Ok(())
}

/// The store of a party's database, without an actor system.
fn open(url: &str) -> anyhow::Result<<Db as Database>::Store> {
    let connect = Connect {
        tables: Tables::default(),
        connections_max: 4,
        timeout: Duration::from_secs(10),
        transaction_pooler: false,
    };
    <Db as Database>::Store::connect(url, &connect).context("the database cannot be used")
}

/// Makes a party's own tables, unless they are there.
async fn create(store: &impl Store<Database = Db>, role: Role) -> anyhow::Result<()> {
    let tables = match role {
        Role::Shop => include_str!("shop.sql"),
        Role::Inventory => include_str!("inventory.sql"),
        Role::Billing => include_str!("billing.sql"),
    };
    let mut session = store
        .begin()
        .await
        .context("the database does not answer")?;
    session.batch_execute(LOCK).await?;
    session
        .batch_execute(&tables.replace("{at}", AT))
        .await
        .context("the tables cannot be made")?;
    session.commit().await?;
    Ok(())
}
