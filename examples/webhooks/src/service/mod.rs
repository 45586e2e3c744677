//! Everything that touches the database, written for one: `Db` is what the file above says.

mod archive;
mod http;
mod intake;
mod statistics;
mod tables;
mod verify;

use std::net::{SocketAddr, TcpListener};

use actix_web::dev::ServerHandle;
use actix_web::rt::task::JoinHandle;
use anyhow::Context;
use posta::{Broker, Consumer, Posta};

use super::{Db, TABLES};
use crate::{BODY_BYTES_MAX, Options, WebhookReceived};
pub use statistics::Statistics;
pub use tables::open;
pub use verify::verify;

/// The service while it runs.
#[derive(Debug)]
pub struct Running {
    /// Where it listens.
    pub address: SocketAddr,
    /// The actor system behind it.
    pub posta: Posta<Db>,
    handle: ServerHandle,
    server: JoinHandle<std::io::Result<()>>,
}

impl Running {
    /// Makes the tables, starts the consumers, then takes deliveries. Needs an actix system on this
    /// thread.
    ///
    /// # Errors
    /// When the database is not there, a URL is none, or the port is taken.
    pub async fn start(options: &Options) -> anyhow::Result<Self> {
        let broker = Broker::from_url(&options.broker).context("the broker cannot be used")?;
        // First, so that a port that is taken is found before anything is done.
        let listener = TcpListener::bind(&options.listen)
            .with_context(|| format!("cannot listen on {}", options.listen))?;
        let address = listener.local_addr()?;
        tables::create(&open(&options.database)?).await?;
        let archive =
            Consumer::named("archive").handle_with::<WebhookReceived, _>(archive::archive);
        let posta = Posta::<Db>::builder(&options.database, broker)
            .migrate_at_start(true)
            .lease_ttl(options.lease)
            .payload_bytes_max(BODY_BYTES_MAX)
            .data(options.secrets.clone())
            .consumer(archive)
            .consumer(Statistics {
                ignored: options.ignored.clone(),
            })
            .start()
            .await
            .context("posta did not start")?;
        let server = http::serve(options, listener, &posta)?;
        let handle = server.handle();
        Ok(Self {
            address,
            posta,
            handle,
            server: actix_web::rt::spawn(server),
        })
    }

    /// Waits for SIGTERM or SIGINT, drains, then ends the HTTP server. In this order, since whoever
    /// sends deliveries may not have heard yet that this process is no longer ready; one that is
    /// answered with 202 is in the database, and can wait there.
    ///
    /// # Errors
    /// When the server failed, or the drain took too long; nothing is lost then, only done again.
    pub async fn until_ended(mut self) -> anyhow::Result<()> {
        let drained = tokio::select! {
            drained = self.posta.run_until_signal() => drained,
            ended = &mut self.server => {
                ended.context("the HTTP server panicked")??;
                return Ok(self.posta.stop().await?);
            }
        };
        self.handle.stop(true).await;
        self.server.await.context("the HTTP server panicked")??;
        Ok(drained?)
    }

    /// Answers what has been asked, takes nothing new, drains.
    ///
    /// # Errors
    /// As [`Running::until_ended`].
    pub async fn stop(self) -> anyhow::Result<()> {
        self.handle.stop(true).await;
        self.server.await.context("the HTTP server panicked")??;
        Ok(self.posta.stop().await?)
    }
}
