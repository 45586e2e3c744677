//! A TCP proxy that can stall, delay and cut what goes through it.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the proxy does with bytes, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Passes them on.
    Pass,
    /// Passes each piece on after a pause.
    Delay(Duration),
    /// Swallows them, with all sockets left open: a network that is cut without a word. New
    /// connections are taken, and silent too.
    Stall,
    /// Passes them on with six bytes exchanged for others wherever they are found in one piece.
    Exchange(&'static [u8; 6], &'static [u8; 6]),
    /// Takes nothing from either side: bytes wait in the sockets, and pass later. A peer that has
    /// stopped reading.
    Hold,
    /// The same for what the server says; what the client says passes.
    HoldAnswers,
    /// The same for what the client says; what the server says passes.
    HoldQuestions,
    /// Closes all sockets, and each new connection at once.
    Cut,
}

/// Who speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

impl Traffic {
    fn holds(self, from: Side) -> bool {
        match self {
            Self::Hold => true,
            Self::HoldAnswers => from == Side::Server,
            Self::HoldQuestions => from == Side::Client,
            _ => false,
        }
    }
}

/// A proxy before one address; it ends when it is dropped.
pub(crate) struct Proxy {
    address: SocketAddr,
    traffic: watch::Sender<Traffic>,
    accepted: watch::Receiver<usize>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts a proxy before a server.
    pub(crate) async fn before(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("a listener has an address");
        let (traffic, watched) = watch::channel(Traffic::Pass);
        let (count, accepted) = watch::channel(0);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.send_modify(|count| *count += 1);
                tokio::spawn(connection(client, server.clone(), watched.clone()));
            }
        });
        Self {
            address,
            traffic,
            accepted,
            task,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// A URL with the proxy in its server's place.
    pub(crate) fn url(&self, url: &str) -> String {
        let (login, rest) = url.rsplit_once('@').expect("the URL has a login");
        let (_, path) = rest.split_once('/').expect("the URL has a path");
        format!("{login}@{}/{path}", self.address)
    }

    /// From now on.
    pub(crate) fn set(&self, traffic: Traffic) {
        self.traffic.send_replace(traffic);
    }

    /// Counts the connections that were made to the proxy.
    pub(crate) fn accepted(&self) -> watch::Receiver<usize> {
        self.accepted.clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.traffic.send_replace(Traffic::Cut);
    }
}

async fn connection(client: TcpStream, server: String, mut traffic: watch::Receiver<Traffic>) {
    // While the network is silent, the server does not learn of the client.
    let passes = |traffic: &Traffic| *traffic != Traffic::Stall;
    let Ok(now) = traffic.wait_for(passes).await.map(|now| *now) else {
        return;
    };
    if now == Traffic::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let cut = traffic.clone();
    tokio::select! {
        () = pump(Side::Client, from_client, to_server, traffic.clone()) => {}
        () = pump(Side::Server, from_server, to_client, traffic.clone()) => {}
        () = until_cut(cut) => {}
    }
}

async fn until_cut(mut traffic: watch::Receiver<Traffic>) {
    let _ = traffic.wait_for(|traffic| *traffic == Traffic::Cut).await;
}

async fn pump(
    who: Side,
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut traffic: watch::Receiver<Traffic>,
) {
    let mut buffer = vec![0; 16 * 1024];
    let mut passing = traffic.clone();
    loop {
        let _ = passing.wait_for(|traffic| !traffic.holds(who)).await;
        let Ok(bytes) = from.read(&mut buffer).await else {
            return;
        };
        if bytes == 0 {
            // While the network is silent, an end does not get through either.
            let _ = traffic.wait_for(|traffic| *traffic != Traffic::Stall).await;
            return;
        }
        // What was being read when the holding began waits here.
        let now = passing.wait_for(|traffic| !traffic.holds(who)).await;
        let Ok(now) = now.map(|now| *now) else {
            return;
        };
        match now {
            Traffic::Pass | Traffic::Hold | Traffic::HoldAnswers | Traffic::HoldQuestions => {}
            Traffic::Delay(pause) => tokio::time::sleep(pause).await,
            Traffic::Stall => continue,
            Traffic::Exchange(found, put) => {
                for start in 0..bytes.saturating_sub(found.len() - 1) {
                    let piece = &mut buffer[start..start + found.len()];
                    if piece == found {
                        piece.copy_from_slice(put);
                    }
                }
            }
            Traffic::Cut => return,
        }
        if to.write_all(&buffer[..bytes]).await.is_err() {
            return;
        }
    }
}
