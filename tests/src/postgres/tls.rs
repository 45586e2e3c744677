use std::net::SocketAddr;

use diesel_async::AsyncPgConnection;
use posta::Tables;
use posta::store::{PostgresStore, Store, StoreError, StoreErrorKind};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::chain;
use crate::harness::postgres::{connect, number, variable};

/// Where the server is, and how to log in.
fn parts() -> (String, SocketAddr) {
    let url = variable("POSTA_TEST_POSTGRES");
    let (login, rest) = url.split_once('@').expect("the URL has a login");
    let (address, _) = rest.split_once('/').expect("the URL has a database");
    (
        login.to_owned(),
        address.parse().expect("the URL has an address"),
    )
}

fn store(host: &str, port: u16, parameters: &str) -> Result<PostgresStore, StoreError> {
    let (login, _) = parts();
    let url = format!("{login}@{host}:{port}/postgres?{parameters}");
    PostgresStore::connect(&url, &connect(Tables::default()))
}

/// Whether the connection is encrypted, or why there is none.
async fn encrypted(host: &str, parameters: &str) -> Result<bool, StoreError> {
    let (_, address) = parts();
    encrypted_at(host, address.port(), parameters).await
}

async fn encrypted_at(host: &str, port: u16, parameters: &str) -> Result<bool, StoreError> {
    let mut session = store(host, port, parameters)?.begin().await?;
    let connection: &mut AsyncPgConnection = &mut session;
    let ssl = "SELECT ssl::int FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let encrypted = number(connection, ssl).await == 1;
    session.rollback().await;
    Ok(encrypted)
}

fn trusting() -> String {
    format!("sslrootcert={}", variable("POSTA_TEST_POSTGRES_CA"))
}

/// A name that the server's certificate does not have, at the server's address.
const STRANGER: &str = "hostaddr=127.0.0.1";

#[tokio::test]
async fn every_sslmode_does_what_libpq_does() {
    let ca = trusting();
    for (host, parameters, expected) in [
        ("127.0.0.1", String::new(), Some(true)),
        ("127.0.0.1", "sslmode=disable".to_owned(), Some(false)),
        ("127.0.0.1", "sslmode=prefer".to_owned(), Some(true)),
        ("127.0.0.1", "sslmode=require".to_owned(), Some(true)),
        (
            "wrong.example",
            format!("sslmode=require&{STRANGER}"),
            Some(true),
        ),
        ("127.0.0.1", format!("sslmode=verify-ca&{ca}"), Some(true)),
        (
            "wrong.example",
            format!("sslmode=verify-ca&{ca}&{STRANGER}"),
            Some(true),
        ),
        (
            "wrong.example",
            format!("sslmode=require&{ca}&{STRANGER}"),
            Some(true),
        ),
        ("127.0.0.1", format!("sslmode=verify-full&{ca}"), Some(true)),
        (
            "localhost",
            format!("sslmode=verify-full&{ca}&{STRANGER}"),
            Some(true),
        ),
        (
            "wrong.example",
            format!("sslmode=verify-full&{ca}&{STRANGER}"),
            None,
        ),
        // An authority of the machine's did not sign the test's server.
        ("localhost", format!("sslmode=verify-full&{STRANGER}"), None),
        ("localhost", format!("sslrootcert=system&{STRANGER}"), None),
    ] {
        match (encrypted(host, &parameters).await, expected) {
            (Ok(found), Some(expected)) => assert_eq!(found, expected, "{host} {parameters}"),
            (Err(error), None) => {
                assert_eq!(error.kind(), StoreErrorKind::Rejected, "{}", chain(&error));
            }
            (found, _) => panic!("{host} {parameters}: {found:?}"),
        }
    }
}

#[tokio::test]
async fn a_file_that_is_no_authority_is_named() {
    for (file, why) in [
        ("/nowhere/ca.pem", "/nowhere/ca.pem"),
        ("/dev/null", "/dev/null"),
    ] {
        let error = store(
            "localhost",
            1,
            &format!("sslmode=verify-full&sslrootcert={file}"),
        );
        let error = error.expect_err("nothing to trust");
        assert_eq!(error.kind(), StoreErrorKind::Rejected);
        assert!(chain(&error).contains(why), "{}", chain(&error));
    }
}

#[tokio::test]
async fn prefer_does_without_where_there_is_no_encryption_and_require_does_not() {
    for answer in [Answer::No, Answer::YesAndHangUp] {
        let port = server_that_says(answer).await;
        assert!(
            !encrypted_at("127.0.0.1", port, "sslmode=prefer")
                .await
                .unwrap()
        );
        let error = encrypted_at("127.0.0.1", port, "sslmode=require")
            .await
            .unwrap_err();
        let lasting = matches!(answer, Answer::No);
        assert_eq!(!error.is_transient(), lasting, "{}", chain(&error));
    }
}

#[derive(Clone, Copy)]
enum Answer {
    No,
    YesAndHangUp,
}

/// A server that answers the question for encryption itself, and passes everything else on.
async fn server_that_says(answer: Answer) -> u16 {
    /// The first message of a client that wants encryption: its length, and the code 80877103.
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (_, server) = parts();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut first = [0; 8];
                client.read_exact(&mut first).await?;
                let mut server = TcpStream::connect(server).await?;
                if first == SSL_REQUEST {
                    match answer {
                        Answer::No => client.write_all(b"N").await?,
                        Answer::YesAndHangUp => return client.write_all(b"S").await,
                    }
                } else {
                    server.write_all(&first).await?;
                }
                copy_bidirectional(&mut client, &mut server).await.map(drop)
            });
        }
    });
    port
}
