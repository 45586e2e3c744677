use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use uuid::Uuid;
use webhooks::{Delivery, Options, Report, Running, Secrets, Sender};

use super::program::Program;
use crate::harness::http;
use crate::harness::postgres;
use crate::harness::rabbitmq::Vhost;
use crate::harness::sqlite::SqliteFile;
use crate::world::until;

const SECRET: &str = "It's a Secret to Everybody";
const PATIENCE: Duration = Duration::from_secs(60);

#[actix_rt::test]
async fn a_killed_service_loses_and_doubles_nothing_on_sqlite_alone() {
    let file = SqliteFile::absent();
    let options = options(&file.url(), "database");
    survives_a_kill(&options, file.directory()).await;
}

#[actix_rt::test]
async fn a_killed_service_loses_and_doubles_nothing_on_sqlite_and_rabbitmq() {
    let (file, vhost) = (SqliteFile::absent(), Vhost::fresh().await);
    let options = options(&file.url(), &vhost.url());
    survives_a_kill(&options, file.directory()).await;
}

#[actix_rt::test]
async fn a_killed_service_loses_and_doubles_nothing_on_postgresql_alone() {
    let (file, (_, _, database)) = (SqliteFile::absent(), postgres::fresh().await);
    let options = options(&database.url(), "database");
    survives_a_kill(&options, file.directory()).await;
}

#[actix_rt::test]
async fn a_killed_service_loses_and_doubles_nothing_on_postgresql_and_rabbitmq() {
    let (file, (_, _, database)) = (SqliteFile::absent(), postgres::fresh().await);
    let vhost = Vhost::fresh().await;
    let options = options(&database.url(), &vhost.url());
    survives_a_kill(&options, file.directory()).await;
}

/// Sends deliveries with repetitions, kills the service half-way, starts it again, and compares.
async fn survives_a_kill(options: &Options, folder: &Path) {
    let (mut service, address) = start(options, folder, "127.0.0.1:0");
    answers_its_probes(address).await;
    refuses_what_is_not_signed(address).await;
    let sent = deliveries();
    let taken = AtomicUsize::new(0);
    let halfway = sent.len() / 2;
    let (half, mut reached) = tokio::sync::mpsc::unbounded_channel();
    let sender = sender(address);
    let sending = {
        let sent = sent.clone();
        actix_rt::task::spawn_blocking(move || {
            sender.send_all(&sent, || {
                if taken.fetch_add(1, Ordering::Relaxed) + 1 == halfway {
                    let _ = half.send(());
                }
            })
        })
    };
    reached
        .recv()
        .await
        .expect("half of the deliveries are taken");
    service.kill();
    // The senders go on trying.
    (service, _) = start(options, folder, &address.to_string());
    let answers = sending
        .await
        .expect("no panic")
        .expect("everything is taken");
    assert_eq!(answers.accepted + answers.done, sent.len() as u64);
    is_right(options, &sent).await;
    service.terminate();
    is_right(options, &sent).await;
}

#[actix_rt::test]
async fn of_copies_sent_at_once_one_is_accepted_on_sqlite() {
    let file = SqliteFile::absent();
    accepts_one_of_many_copies(&options(&file.url(), "database")).await;
}

#[actix_rt::test]
async fn of_copies_sent_at_once_one_is_accepted_on_postgresql() {
    let (_, _, database) = postgres::fresh().await;
    accepts_one_of_many_copies(&options(&database.url(), "database")).await;
}

/// The service in this process, as a program that embeds it has it.
async fn accepts_one_of_many_copies(options: &Options) {
    let options = Options {
        listen: "127.0.0.1:0".to_owned(),
        ..options.clone()
    };
    let running = Running::start(&options).await.expect("the service starts");
    let sender = sender(running.address());
    let sent: Vec<Delivery> = (0..10)
        .map(|number| delivery(number, Some("octo/copies")))
        .collect();
    for delivery in &sent {
        let copies: Vec<_> = (0..8)
            .map(|_| {
                let (sender, delivery) = (sender.clone(), delivery.clone());
                actix_rt::task::spawn_blocking(move || sender.send(&delivery))
            })
            .collect();
        let mut accepted = 0;
        for copy in copies {
            let answers = copy.await.expect("no panic").expect("an answer");
            assert_eq!((answers.accepted + answers.done, answers.failed), (1, 0));
            accepted += answers.accepted;
        }
        assert_eq!(accepted, 1);
    }
    is_right(&options, &sent).await;
    running.stop().await.expect("the service ends");
}

/// It is live from the start, and ready soon.
async fn answers_its_probes(address: SocketAddr) {
    let probe = |path: &str| {
        let answer = http::request(&address.to_string(), "", "GET", path, None);
        answer.expect("an answer")
    };
    let (status, health) = probe("/live");
    assert_eq!(status, 200, "{health}");
    until("it is ready", async || probe("/ready").0 == 200).await;
}

/// What the service answers to requests that are not GitHub's; nothing of them is stored, as the
/// comparison at the end shows.
async fn refuses_what_is_not_signed(address: SocketAddr) {
    let sender = sender(address);
    let check = move || {
        let good = delivery(1_000_000, Some("octo/refused"));
        let other = Secrets::new(["another secret"]).expect("a secret");
        let status = |delivery: &Delivery, signature: Option<&str>| {
            sender.post(delivery, signature).expect("an answer")
        };
        assert_eq!(status(&good, None), 401);
        for wrong in [
            "",
            "sha256=",
            "sha256=00",
            "sha1=00",
            &other.sign(&good.body),
        ] {
            assert_eq!(status(&good, Some(wrong)), 401, "{wrong:?}");
        }
        let signed = |body: &str| {
            let delivery = Delivery {
                body: body.to_owned().into(),
                ..good.clone()
            };
            status(&delivery, Some(&secrets().sign(body.as_bytes())))
        };
        assert_eq!(signed("no JSON"), 400);
        assert_eq!(signed(r#"{"repository":{"full_name":""}}"#), 400);
        assert_eq!(
            signed(&format!(
                r#"{{"repository":{{"full_name":"{}"}}}}"#,
                "r".repeat(256)
            )),
            400
        );
        assert_eq!(signed(&" ".repeat(webhooks::BODY_BYTES_MAX + 1)), 413);
    };
    actix_rt::task::spawn_blocking(check)
        .await
        .expect("every answer is right");
}

fn start(options: &Options, folder: &Path, listen: &str) -> (Program, SocketAddr) {
    let mut service = Program::start("webhooks", folder, |command| {
        command.env("WEBHOOKS_SECRET", SECRET);
        command.args(["--listen", listen, "--lease", "1"]);
        command.args(["--database", &options.database, "--broker", &options.broker]);
    });
    let line = service.line_with("http://");
    let address = line
        .trim()
        .trim_start_matches("webhooks: http://")
        .trim_end_matches("/webhooks");
    (service, address.parse().expect("an address"))
}

async fn is_right(options: &Options, sent: &[Delivery]) {
    let report: Report = webhooks::verify(options, sent, PATIENCE)
        .await
        .expect("a report");
    assert!(report.is_right(), "\n{report}");
}

/// 60 deliveries, skewed as in life: half of them to one repository, every tenth to none. A
/// quarter is sent again later.
fn deliveries() -> Vec<Delivery> {
    let mut sent = Vec::new();
    for number in 0..60 {
        let repository = match number % 10 {
            0 => None,
            1..=5 => Some("octo/busy".to_owned()),
            other => Some(format!("octo/quiet-{other}")),
        };
        sent.push(delivery(number, repository.as_deref()));
        if number % 4 == 3 {
            sent.push(sent[sent.len() * 2 / 3].clone());
        }
    }
    sent
}

/// A delivery whose bytes are not those that a JSON library would write.
fn delivery(number: u64, repository: Option<&str>) -> Delivery {
    let repository = repository.map(|name| format!(r#" "repository" : {{"full_name":"{name}"}},"#));
    let repository = repository.unwrap_or_default();
    let body =
        format!("{{{repository}\t\"n\":{number}.0, \"text\":\"\\u0000\\ud83d\\ude00 é\" }}\n");
    Delivery {
        id: Uuid::now_v7(),
        event: format!("event_{}", number % 7),
        body: body.into(),
    }
}

fn options(database: &str, broker: &str) -> Options {
    let options = Options::new(secrets());
    Options {
        database: database.to_owned(),
        broker: broker.to_owned(),
        lease: Duration::from_secs(1),
        ..options
    }
}

fn secrets() -> Secrets {
    Secrets::new([SECRET]).expect("a secret")
}

fn sender(address: SocketAddr) -> Sender {
    Sender::to(address, secrets(), PATIENCE)
}
