//! The main job with `--input`: webhook deliveries from a file, sent over HTTP to the `webhooks`
//! service, which is killed on the way.
//!
//! ```text
//! this process ── HTTP, as GitHub sends ──► worker "webhooks": intake, outbox, broker, consumers
//! ```
//!
//! At the end the archive must hold every body byte for byte, once, and the statistics of each
//! repository must be those of the deliveries in their order. It can be resumed like the other:
//! what was taken in before is answered as done.

use std::fs::File;
use std::io::BufReader;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use webhooks::{Delivery, Options, Report, Running, Secrets, Sender, verify};

use crate::crew::{Crew, Order, Role};
use crate::error::JobError;
use crate::flags::Flags;
use crate::progress::Progress;

/// Both sides are ours, on the loopback interface, for a few seconds: it only has to be the same
/// when a run is resumed.
const SECRET: &str = "the main job's own";

/// A killed worker's lanes and partitions rest for this long at most.
const LEASE_TTL: Duration = Duration::from_secs(2);

/// Between two looks at the workers.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Sends a file's deliveries, some of them twice, and compares what the service made of them.
pub(crate) async fn run(
    flags: &Flags,
    file: &Path,
    database: &str,
    progress: &Progress,
) -> Result<Report, JobError> {
    let sent = deliveries(file, flags.duplicates)?;
    // Free now; the worker takes it, at each of its starts.
    let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let order = Order::new(Role::Webhooks(address), database, &flags.broker);
    let mut crew = Crew::start(vec![order], progress)?;
    progress.begin_sending(sent.len() as u64);
    let outcome = tokio::select! {
        outcome = send_and_verify(flags, &sent, database, address, &mut crew, progress) => outcome,
        () = crate::interrupted() => Err(JobError::Interrupted),
    };
    progress.end();
    crew.stop().await;
    outcome
}

async fn send_and_verify(
    flags: &Flags,
    sent: &[Delivery],
    database: &str,
    address: SocketAddr,
    crew: &mut Crew,
    progress: &Progress,
) -> Result<Report, JobError> {
    let count = Arc::new(AtomicU64::new(0));
    let sender = Sender::to(address, secrets(), flags.patience());
    let mut sending = tokio::task::spawn_blocking({
        let (count, sent) = (count.clone(), sent.to_vec());
        move || sender.send_all(&sent, || _ = count.fetch_add(1, Ordering::Relaxed))
    });
    let third = sent.len() as u64 / 3;
    let mut kills = vec![third * 2, third];
    while !sending.is_finished() {
        let sent = count.load(Ordering::Relaxed);
        progress.show_sent(sent);
        if kills.last().is_some_and(|at| sent >= *at) {
            kills.pop();
            if crew.kill(Role::Webhooks(address))? {
                progress.note("the webhooks worker was killed (SIGKILL) and is started again");
            }
        }
        crew.watch()?;
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
    (&mut sending)
        .await
        .expect("a sender does not panic")
        .map_err(JobError::Webhooks)?;
    let options = options(database, &flags.broker, address);
    let end = Instant::now() + flags.patience();
    loop {
        crew.watch()?;
        // In steps, so that a worker that has ended is started again meanwhile.
        let report = verify(&options, sent, Duration::from_millis(500))
            .await
            .map_err(JobError::Webhooks)?;
        if report.is_right() || Instant::now() >= end {
            return Ok(report);
        }
    }
}

/// Runs the service in a worker until `end` comes.
pub(crate) async fn work(
    order: &Order,
    address: SocketAddr,
    end: oneshot::Receiver<()>,
) -> Result<(), JobError> {
    let options = options(&order.database, &order.broker, address);
    let running = Running::start(&options).await.map_err(JobError::Webhooks)?;
    // An error means that the sender is gone, which is the end as well.
    let _ = end.await;
    running.stop().await.map_err(JobError::Webhooks)
}

/// The file's deliveries; so many percent of them come once more, a few deliveries later.
fn deliveries(file: &Path, duplicates: i64) -> Result<Vec<Delivery>, JobError> {
    let unusable = |error: String| JobError::Usage(format!("--input {}: {error}", file.display()));
    let lines = File::open(file).map_err(|error| unusable(error.to_string()))?;
    let read = Delivery::read_lines(BufReader::new(lines))
        .map_err(|error| unusable(format!("{error:#}")))?;
    let mut sent = Vec::with_capacity(read.len() * 2);
    let mut again = Vec::new();
    for (n, delivery) in (1..).zip(read) {
        if n * duplicates / 100 > (n - 1) * duplicates / 100 {
            again.push(delivery.clone());
        }
        sent.push(delivery);
        if n % 10 == 0 {
            sent.append(&mut again);
        }
    }
    sent.append(&mut again);
    Ok(sent)
}

fn options(database: &str, broker: &str, address: SocketAddr) -> Options {
    Options {
        listen: address.to_string(),
        database: database.to_owned(),
        broker: broker.to_owned(),
        lease: LEASE_TTL,
        ..Options::new(secrets())
    }
}

fn secrets() -> Secrets {
    Secrets::new([SECRET]).expect("it is not empty")
}

/// A report as one JSON object.
pub(crate) fn json(report: &Report) -> String {
    serde_json::json!({
        "sent": report.sent,
        "sent_again": report.repeated,
        "stored": report.stored,
        "archived": report.archived,
        "lost": report.lost,
        "doubled": report.doubled,
        "altered": report.altered,
        "repositories": report.repositories,
        "out_of_order": report.wrong.len(),
    })
    .to_string()
}
