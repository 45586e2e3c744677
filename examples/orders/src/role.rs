use std::fmt;

use anyhow::ensure;
use clap::ValueEnum;

/// Who a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Role {
    /// Takes orders, and tells what has become of them.
    Shop,
    /// Reserves stock.
    Inventory,
    /// Issues invoices.
    Billing,
}

/// Where a party lives.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// `sqlite://FILE` or `postgres://…`, of this party alone.
    pub(crate) database: String,
    /// `amqp://…` or `amqps://…`, the same for all.
    pub(crate) broker: String,
    /// Seconds that the work of a killed process rests.
    pub(crate) lease: u64,
}

impl Place {
    /// Refuses the database broker: it would carry messages within one party's database, where
    /// nobody else reads them.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!(
            self.broker != "database",
            "three parties with a database each need a broker between them: --broker amqp://…"
        );
        Ok(())
    }
}

/// Whether a URL is one of PostgreSQL's.
pub(crate) fn is_postgres(database: &str) -> bool {
    database.starts_with("postgres://") || database.starts_with("postgresql://")
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shop => "the shop",
            Self::Inventory => "inventory",
            Self::Billing => "billing",
        })
    }
}
