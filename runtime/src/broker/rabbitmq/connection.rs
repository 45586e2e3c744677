use std::fmt;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use lapin::types::LongString;
use lapin::uri::{AMQPAuthority, AMQPQueryString, AMQPScheme, AMQPUri, AMQPUserInfo};
use lapin::{AsyncTcpStream, ConnectionProperties, Event};
use tokio::sync::watch;

use super::classify::{self, Purpose};
use super::reactor::Reactor;
use super::{RabbitMqOptions, tls};
use crate::broker::{BrokerError, BrokerErrorKind};

/// How a connection is, as far as the broker and the heartbeats tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Open.
    Open,
    /// Open, but the broker reads nothing more from it; why.
    Blocked(String),
    /// Gone for good; why.
    Lost(String),
}

/// One connection to the broker. It is never mended: when it is lost, a new one takes its place in
/// the slot.
///
/// Dropped, it closes in the background: politely, or after a deadline by shutting the socket down,
/// so that no thread of lapin's waits for an answer that does not come.
pub(super) struct Connection {
    lapin: Option<lapin::Connection>,
    socket: Socket,
    health: watch::Receiver<Health>,
    reactor: Reactor,
    answer_timeout: Duration,
    name: String,
}

impl Connection {
    /// Makes a connection, within the configured time.
    ///
    /// # Cancel safety
    /// Safe: it comes to its end on the reactor's thread, and is closed if nobody takes it.
    pub(super) async fn open(
        options: &RabbitMqOptions,
        reactor: &Reactor,
        use_: &'static str,
    ) -> Result<Self, BrokerError> {
        let operation = format!("connect to {}", options.address());
        let making = Self::make(options.clone(), reactor.clone(), use_, operation.clone());
        match reactor.spawn(making).await {
            Ok(made) => made,
            Err(died) => {
                Err(BrokerError::new(operation, BrokerErrorKind::Unavailable).with_source(died))
            }
        }
    }

    async fn make(
        options: RabbitMqOptions,
        reactor: Reactor,
        use_: &'static str,
        operation: String,
    ) -> Result<Self, BrokerError> {
        let (socket, timeout) = (Socket::default(), options.connect_timeout);
        let address = options.address();
        let answer_timeout = options.answer_timeout;
        let connecting = connect(options, reactor.clone(), use_, socket.clone());
        let error = match tokio::time::timeout(timeout, connecting).await {
            Ok(Ok(lapin)) => {
                let health = watch_health(&lapin, &reactor, address.clone(), use_);
                tracing::info!(%address, r#use = use_, "connected to RabbitMQ");
                return Ok(Self {
                    lapin: Some(lapin),
                    socket,
                    health,
                    reactor,
                    answer_timeout,
                    name: format!("{address} ({use_})"),
                });
            }
            Ok(Err(error)) => classify::broker_error(operation, Purpose::Connect, &error),
            Err(_elapsed) => BrokerError::new(operation, BrokerErrorKind::Timeout)
                .with_source(format!("no connection within {timeout:?}")),
        };
        // Lapin's thread may still wait on the socket, which it would do for ever.
        socket.shut_down();
        Err(error)
    }

    /// Whether it can still be used.
    pub(super) fn is_open(&self) -> bool {
        self.lapin().status().connected() && !matches!(*self.health.borrow(), Health::Lost(_))
    }

    /// How it is.
    pub(super) fn health(&self) -> Health {
        let health = self.health.borrow().clone();
        match health {
            Health::Open | Health::Blocked(_) if !self.lapin().status().connected() => {
                Health::Lost("the connection was closed".to_owned())
            }
            health => health,
        }
    }

    /// Closes it, whoever uses it: in the background, politely, or after a deadline by shutting the
    /// socket down.
    pub(super) fn close(self: Arc<Self>) {
        let reactor = self.reactor.clone();
        reactor.spawn(async move {
            let closing = self.lapin().close(200, "OK".into());
            match tokio::time::timeout(self.answer_timeout, closing).await {
                Ok(Ok(())) => {}
                _ => self.socket.shut_down(),
            }
        });
    }

    /// Tells of changes.
    pub(super) fn watch(&self) -> watch::Receiver<Health> {
        self.health.clone()
    }

    pub(super) fn lapin(&self) -> &lapin::Connection {
        self.lapin
            .as_ref()
            .expect("a connection has its lapin connection until it is dropped")
    }

    pub(super) fn reactor(&self) -> &Reactor {
        &self.reactor
    }

    pub(super) fn answer_timeout(&self) -> Duration {
        self.answer_timeout
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let Some(lapin) = self.lapin.take() else {
            return;
        };
        let (socket, timeout) = (self.socket.clone(), self.answer_timeout);
        self.reactor.spawn(async move {
            if lapin.status().connected() {
                let _ = tokio::time::timeout(timeout, lapin.close(200, "OK".into())).await;
            }
            socket.shut_down();
        });
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("name", &self.name)
            .field("health", &*self.health.borrow())
            .finish_non_exhaustive()
    }
}

async fn connect(
    options: RabbitMqOptions,
    reactor: Reactor,
    use_: &'static str,
    socket: Socket,
) -> lapin::Result<lapin::Connection> {
    let tls = match options.tls {
        true => Some(tls::connector(options.ca_file.as_deref())?),
        false => None,
    };
    // No automatic recovery and no repeated attempts: whoever needs a connection asks again, with
    // its own backoff.
    let name = format!("{} {use_}", options.connection_name);
    let properties = ConnectionProperties::default()
        .with_connection_name(LongString::from(name.into_bytes()))
        .with_client_property("product".into(), "posta".into())
        .with_client_property("version".into(), env!("CARGO_PKG_VERSION").into());
    let uri = uri(&options);
    let runtime = {
        let _within = reactor.handle().enter();
        lapin::runtime::default_runtime()?
    };
    lapin::Connection::connector(
        uri,
        runtime,
        // Runs on a thread of lapin's that nobody can interrupt: it needs a deadline of its own.
        async move |_uri, runtime| {
            let dial = async {
                let mut last_error = None;
                for (host, port) in options.nodes_in_turn() {
                    let attempt = async {
                        let address = runtime.to_socket_addrs((host.clone(), *port));
                        let stream = AsyncTcpStream::connect(&runtime, address).await?;
                        if let AsyncTcpStream::Plain(plain) = &stream {
                            socket.set(duplicate(plain.get_ref())?);
                        }
                        match &tls {
                            None => Ok(stream),
                            Some(tls) => stream.into_rustls(tls, host).await,
                        }
                    };
                    match attempt.await {
                        Ok(stream) => return Ok(stream),
                        Err(error) => {
                            tracing::debug!(%host, port, %error, "a node takes no connection");
                            last_error = Some(error);
                        }
                    }
                }
                Err(last_error.unwrap_or_else(|| io::ErrorKind::NotConnected.into()))
            };
            match tokio::time::timeout(options.connect_timeout, dial).await {
                Ok(dialled) => Ok(dialled?),
                Err(_elapsed) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            }
        },
        properties,
    )
    .await
}

fn uri(options: &RabbitMqOptions) -> AMQPUri {
    let (host, port) = options.nodes.first().cloned().unwrap_or_default();
    AMQPUri {
        scheme: if options.tls {
            AMQPScheme::AMQPS
        } else {
            AMQPScheme::AMQP
        },
        authority: AMQPAuthority {
            userinfo: AMQPUserInfo {
                username: options.username.clone(),
                password: options.password.clone(),
            },
            host,
            port,
        },
        vhost: options.vhost.clone(),
        query: AMQPQueryString {
            frame_max: Some(options.frame_bytes_max),
            heartbeat: Some(options.heartbeat.as_secs().try_into().unwrap_or(u16::MAX)),
            ..AMQPQueryString::default()
        },
    }
}

/// Follows the connection's events until it is gone.
fn watch_health(
    lapin: &lapin::Connection,
    reactor: &Reactor,
    address: String,
    use_: &'static str,
) -> watch::Receiver<Health> {
    let (health, watched) = watch::channel(Health::Open);
    let (mut events, status) = (lapin.events_listener(), lapin.status().clone());
    // Not through `spawn`: this task ends with the connection, and must not keep the reactor's
    // thread for it.
    reactor.handle().spawn(async move {
        while let Some(event) = events.next().await {
            let now = match event {
                Event::ConnectionBlocked(reason) => {
                    tracing::warn!(%address, r#use = use_, %reason, "RabbitMQ has blocked the connection");
                    Health::Blocked(reason)
                }
                Event::ConnectionUnblocked => {
                    tracing::info!(%address, r#use = use_, "RabbitMQ has unblocked the connection");
                    Health::Open
                }
                // Channels report their errors here too; only the connection's own end it.
                Event::Error(error) if !status.connected() => {
                    let reason = classify::text(&error);
                    tracing::warn!(%address, r#use = use_, %reason, "the connection to RabbitMQ is lost");
                    Health::Lost(reason)
                }
                _ => continue,
            };
            health.send_replace(now);
        }
    });
    watched
}

/// A second handle on a connection's socket, to shut it down when lapin's thread waits on it.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Option<TcpStream>>>);

impl Socket {
    fn set(&self, stream: TcpStream) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
    }

    fn shut_down(&self) {
        if let Some(stream) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // It fails only if the socket is closed already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[cfg(unix)]
fn duplicate(stream: &tokio::net::TcpStream) -> io::Result<TcpStream> {
    use std::os::fd::AsFd;
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

#[cfg(windows)]
fn duplicate(stream: &tokio::net::TcpStream) -> io::Result<TcpStream> {
    use std::os::windows::io::AsSocket;
    Ok(stream.as_socket().try_clone_to_owned()?.into())
}
