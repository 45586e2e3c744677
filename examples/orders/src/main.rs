//! Orders: a shop, an inventory and a billing, three processes with a database each, and RabbitMQ
//! between them.
//!
//! ```text
//! export ORDERS_BROKER=amqp://localhost
//! cargo run -p orders -- inventory        each in a terminal of its own
//! cargo run -p orders -- billing
//! cargo run -p orders -- shop
//! cargo run -p orders -- place --count 100
//! cargo run -p orders -- report
//! ```
//!
//! The databases are SQLite files in the working directory; `--database postgres://…` gives a party
//! a PostgreSQL database instead. Start inventory and
//! billing before the first order: a message goes to the queues that are there, and theirs are from
//! their first start on. `RUST_LOG=debug` says more. README.md tells what happens.

mod books;
mod catalogue;
mod ledger;
mod messages;
mod postgres;
mod role;
mod sqlite;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use tracing_subscriber::EnvFilter;

use crate::books::Books;
use crate::ledger::Ledger;
use crate::role::{Place, Role, is_postgres};

/// A shop, an inventory and a billing that tell each other about orders.
#[derive(Parser)]
#[command(name = "orders")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the shop: tell of orders, hear what has become of them
    Shop {
        /// The shop's database: sqlite://FILE or postgres://…
        #[arg(long, default_value = "sqlite://shop.db")]
        database: String,
        #[command(flatten)]
        party: Party,
    },
    /// Run the inventory: reserve stock
    Inventory {
        /// The inventory's database: sqlite://FILE or postgres://…
        #[arg(long, default_value = "sqlite://inventory.db")]
        database: String,
        #[command(flatten)]
        party: Party,
        /// Pieces of each item at the first start
        #[arg(long, default_value_t = 50)]
        stock: i64,
    },
    /// Run the billing: issue invoices
    Billing {
        /// The billing's database: sqlite://FILE or postgres://…
        #[arg(long, default_value = "sqlite://billing.db")]
        database: String,
        #[command(flatten)]
        party: Party,
    },
    /// Place orders, then change and cancel some of them
    Place {
        /// The shop's database
        #[arg(long, default_value = "sqlite://shop.db")]
        database: String,
        /// How many orders
        #[arg(long, default_value_t = 100)]
        count: u64,
        /// How often an order is changed at most
        #[arg(long, default_value_t = 3)]
        changes: u64,
    },
    /// Sum up what has become of the orders; fails if it is not right
    Report {
        /// The shop's database
        #[arg(long, default_value = "sqlite://shop.db")]
        shop: String,
        /// The inventory's database
        #[arg(long, default_value = "sqlite://inventory.db")]
        inventory: String,
        /// The billing's database
        #[arg(long, default_value = "sqlite://billing.db")]
        billing: String,
        /// Seconds to wait until everything has arrived
        #[arg(long, default_value_t = 0)]
        patience: u64,
    },
}

#[derive(Args)]
struct Party {
    /// amqp://… or amqps://…, the same for all three
    #[arg(long, env = "ORDERS_BROKER", hide_env_values = true)]
    broker: String,
    /// Seconds that the work of a killed process rests
    #[arg(long, default_value_t = 15)]
    lease: u64,
}

#[actix::main]
async fn main() -> anyhow::Result<ExitCode> {
    log();
    match Arguments::parse().command {
        Command::Shop { database, party } => run(Role::Shop, database, party, 0).await?,
        Command::Inventory {
            database,
            party,
            stock,
        } => {
            run(Role::Inventory, database, party, stock).await?;
        }
        Command::Billing { database, party } => run(Role::Billing, database, party, 0).await?,
        Command::Place {
            database,
            count,
            changes,
        } => match is_postgres(&database) {
            true => postgres::place(&database, count, changes).await?,
            false => sqlite::place(&database, count, changes).await?,
        },
        Command::Report {
            shop,
            inventory,
            billing,
            patience,
        } => {
            let parties = [
                (Role::Shop, shop),
                (Role::Inventory, inventory),
                (Role::Billing, billing),
            ];
            let ledger = settle(&parties, Duration::from_secs(patience)).await?;
            println!("{ledger}");
            if !ledger.is_right() {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Logs to standard error what `RUST_LOG` says; by default without Posta's spans, which are for
/// OpenTelemetry and make a long line of each.
fn log() {
    let filter = EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| EnvFilter::new("info,posta::telemetry=off"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_target(false)
        .with_writer(std::io::stderr)
        .init();
}

async fn run(role: Role, database: String, party: Party, stock: i64) -> anyhow::Result<()> {
    let place = Place {
        database,
        broker: party.broker,
        lease: party.lease,
    };
    place.check()?;
    match is_postgres(&place.database) {
        true => postgres::run(role, &place, stock).await,
        false => sqlite::run(role, &place, stock).await,
    }
}

/// Sums up again and again until it is right, or patience is over.
async fn settle(parties: &[(Role, String)], patience: Duration) -> anyhow::Result<Ledger> {
    let end = Instant::now() + patience;
    loop {
        let mut books = Books::default();
        for (role, database) in parties {
            match is_postgres(database) {
                true => postgres::report(*role, database, &mut books).await?,
                false => sqlite::report(*role, database, &mut books).await?,
            }
        }
        let ledger = books.ledger();
        if ledger.is_right() || Instant::now() >= end {
            return Ok(ledger);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
