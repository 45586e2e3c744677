//! The network between each seat and each server: proxies on a thread of their own, that goes on
//! whatever the driver waits for.

use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::harness::proxy::Proxy;

/// A server that seats reach through proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Server {
    Postgres,
    RabbitMq,
}

/// One proxy for each seat before each server.
pub(super) struct Network {
    pub(super) proxies: Vec<(usize, Server, Proxy)>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Network {
    /// Puts proxies between so many seats and these servers.
    pub(super) fn before(servers: &[(Server, String)], seats: usize) -> Self {
        let (made, proxies) = mpsc::channel();
        let (end, ended) = oneshot::channel();
        let servers = servers.to_vec();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let mut proxies = Vec::new();
                for seat in 0..seats {
                    for (server, address) in &servers {
                        let proxy = Proxy::before(address.clone()).await;
                        proxies.push((seat, *server, proxy));
                    }
                }
                made.send(proxies).expect("somebody who asked for them");
                // An error: the other end is gone.
                let _ = ended.await;
            });
        });
        Self {
            proxies: proxies.recv().expect("proxies"),
            end: Some(end),
            thread: Some(thread),
        }
    }

    /// A seat's URL of a server: through its proxy.
    pub(super) fn url(&self, seat: usize, server: Server, url: &str) -> String {
        let mut proxies = self.proxies.iter();
        let proxy = proxies.find(|(at, before, _)| (*at, *before) == (seat, server));
        proxy.map_or_else(|| url.to_owned(), |(_, _, proxy)| proxy.url(url))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.proxies.clear();
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
