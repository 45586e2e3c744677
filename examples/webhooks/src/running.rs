use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::{Delivery, Options, Report, postgres, sqlite};

/// The service while it runs, whichever database it runs on: the one place that chooses.
#[derive(Debug)]
pub enum Running {
    /// On SQLite.
    Sqlite(sqlite::Running),
    /// On PostgreSQL.
    Postgres(postgres::Running),
}

/// Between two looks at the tables while waiting for quiet.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);

impl Running {
    /// Starts the service on the database that the URL's scheme says. Needs an actix system on this
    /// thread.
    ///
    /// # Errors
    /// When the database is not there, a URL is none, or the port is taken.
    pub async fn start(options: &Options) -> anyhow::Result<Self> {
        Ok(if is_postgres(&options.database) {
            Self::Postgres(postgres::Running::start(options).await?)
        } else {
            Self::Sqlite(sqlite::Running::start(options).await?)
        })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Sqlite(running) => running.address,
            Self::Postgres(running) => running.address,
        }
    }

    /// Waits for SIGTERM or SIGINT, drains, then ends the HTTP server.
    ///
    /// # Errors
    /// When the server failed, or the drain took too long; nothing is lost then, only done again.
    pub async fn until_ended(self) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(running) => running.until_ended().await,
            Self::Postgres(running) => running.until_ended().await,
        }
    }

    /// Answers what has been asked, takes nothing new, drains.
    ///
    /// # Errors
    /// As [`Running::until_ended`].
    pub async fn stop(self) -> anyhow::Result<()> {
        match self {
            Self::Sqlite(running) => running.stop().await,
            Self::Postgres(running) => running.stop().await,
        }
    }
}

/// Compares a database's tables with what was sent, until they are right or `patience` is over;
/// gives back the last comparison.
///
/// The service may run meanwhile, in this process or another, or not at all.
///
/// # Errors
/// When the database does not answer, or a body that was sent is none of GitHub's.
pub async fn verify(
    options: &Options,
    sent: &[Delivery],
    patience: Duration,
) -> anyhow::Result<Report> {
    let end = Instant::now() + patience;
    if is_postgres(&options.database) {
        let store = postgres::open(&options.database)?;
        settle(end, async || {
            postgres::verify(&store, sent, &options.ignored).await
        })
        .await
    } else {
        let store = sqlite::open(&options.database)?;
        settle(end, async || {
            sqlite::verify(&store, sent, &options.ignored).await
        })
        .await
    }
}

async fn settle(
    end: Instant,
    look: impl AsyncFn() -> anyhow::Result<Report>,
) -> anyhow::Result<Report> {
    loop {
        let report = look().await?;
        if report.is_right() || Instant::now() >= end {
            return Ok(report);
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

fn is_postgres(url: &str) -> bool {
    url.starts_with("postgres://") || url.starts_with("postgresql://")
}
