use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;

use diesel::{ConnectionError, ConnectionResult};
use diesel_async::pooled_connection::{
    AsyncDieselConnectionManager, ManagerConfig, RecyclingMethod,
};
use diesel_async::{AsyncPgConnection, SimpleAsyncConnection};
use futures_util::future::{BoxFuture, Either, FutureExt, select};
use tokio_postgres::config::SslMode;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::tls;
use super::url::{Mode, Target};

/// diesel-async's manager of PostgreSQL connections: what the pool is made of.
pub(super) type Manager = AsyncDieselConnectionManager<AsyncPgConnection>;

/// A manager that connects to a target.
///
/// Connections are taken back unseen: each transaction begins with a statement that finds out
/// whether its connection is alive, so a second one to ask beforehand would only cost a round trip.
pub(super) fn manager(target: Target) -> Result<Manager, tls::TlsError> {
    let tls = tls::connector(target.mode, &target.roots)?;
    let mut config = ManagerConfig::<AsyncPgConnection>::default();
    config.recycling_method = RecyclingMethod::Fast;
    config.custom_setup = Box::new(move |_url| establish(target.clone(), tls.clone()));
    // The URL, with its password, is not kept.
    Ok(Manager::new_with_config(String::new(), config))
}

fn establish(
    target: Target,
    tls: MakeRustlsConnect,
) -> BoxFuture<'static, ConnectionResult<AsyncPgConnection>> {
    async move {
        let (client, connection) = reach(&target, tls).await.map_err(explained)?;
        prepare(client, connection).await
    }
    .boxed()
}

type Reached = (
    Client,
    Connection<Socket, <MakeRustlsConnect as tokio_postgres::tls::MakeTlsConnect<Socket>>::Stream>,
);

/// Connects, and with `sslmode=prefer` once more in the clear if the server offers encryption but
/// it fails, or if the server wants none for this user: what libpq does.
async fn reach(target: &Target, tls: MakeRustlsConnect) -> Result<Reached, tokio_postgres::Error> {
    let failure = match target.config.connect(tls.clone()).await {
        Ok(reached) => return Ok(reached),
        Err(failure) => failure,
    };
    let may_fall_back =
        target.mode == Mode::Prefer && target.config.get_ssl_mode() == SslMode::Prefer;
    if !may_fall_back || !concerns_encryption(&failure) {
        return Err(failure);
    }
    let mut clear = target.config.clone();
    clear.ssl_mode(SslMode::Disable);
    // If this fails too, the first failure says more.
    clear.connect(tls).await.map_err(|_| failure)
}

/// tokio-postgres tells the kind of an error only by its words.
fn concerns_encryption(error: &tokio_postgres::Error) -> bool {
    error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
        || error
            .to_string()
            .starts_with("error performing TLS handshake")
}

/// Makes a diesel connection, whose construction sets time zone and encoding.
///
/// It does so by prepared statements, outside a transaction, and a pooler in transaction mode may
/// send the two steps of such a statement to two servers. Within a transaction it cannot; so there
/// is one around them.
async fn prepare(
    client: Client,
    mut connection: Connection<
        Socket,
        impl tokio_postgres::tls::TlsStream + Unpin + Send + 'static,
    >,
) -> ConnectionResult<AsyncPgConnection> {
    let begin = client.batch_execute("BEGIN");
    drive(&mut connection, begin).await?.map_err(explained)?;
    let mut connection =
        AsyncPgConnection::try_from_client_and_connection(client, connection).await?;
    let done = connection.batch_execute("COMMIT").await;
    done.map_err(ConnectionError::CouldntSetupConfiguration)?;
    Ok(connection)
}

/// Awaits a client's future while nobody else drives its connection.
async fn drive<S: tokio_postgres::tls::TlsStream + Unpin, Output>(
    connection: &mut Connection<Socket, S>,
    future: impl Future<Output = Output>,
) -> ConnectionResult<Output> {
    let mut future = pin!(future);
    loop {
        let message = poll_fn(|cx| connection.poll_message(cx));
        match select(future.as_mut(), pin!(message)).await {
            Either::Left((output, _)) => return Ok(output),
            // A notice.
            Either::Right((Some(Ok(_)), _)) => {}
            Either::Right((Some(Err(error)), _)) => return Err(explained(error)),
            Either::Right((None, _)) => {
                return Err(ConnectionError::BadConnection(
                    "the server closed the connection".to_owned(),
                ));
            }
        }
    }
}

/// A failure to connect with all its causes, as diesel can carry it: `InvalidConnectionUrl` says
/// that the same will fail again, `BadConnection` that it may not.
fn explained(error: tokio_postgres::Error) -> ConnectionError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    if is_lasting(&error) {
        ConnectionError::InvalidConnectionUrl(text)
    } else {
        ConnectionError::BadConnection(text)
    }
}

/// Whether only a change of the URL or of the server's settings can help: a wrong password, user or
/// database; a certificate that is not trusted; encryption that one side wants and the other does
/// not.
fn is_lasting(error: &tokio_postgres::Error) -> bool {
    if let Some(code) = error.code() {
        return [
            SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            SqlState::INVALID_PASSWORD,
            SqlState::INVALID_CATALOG_NAME,
        ]
        .contains(code);
    }
    concerns_encryption(error)
        && error
            .source()
            .and_then(|cause| cause.downcast_ref::<io::Error>())
            .is_none_or(|cause| {
                // What rustls itself refuses; other kinds are the network's.
                cause.kind() == io::ErrorKind::InvalidData
            })
}
