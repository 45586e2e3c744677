use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::binary::{Run, assert_holds};
use crate::harness::rabbitmq::Vhost;
use crate::world::{TestDatabase, until};

const DOCUMENTS: i64 = 600;

/// Kills the run and its workers at random moments, starts it again with the same flags, and lets
/// the last one come to its end.
async fn killed_at_random_moments_it_goes_on_to_the_same_end<D: TestDatabase>(
    vhost: Option<Vhost>,
) {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let (database, _, _guard) = D::fresh().await;
    let broker = vhost
        .as_ref()
        .map_or_else(|| "database".to_owned(), Vhost::url);
    let documents = DOCUMENTS.to_string();
    let flags = [
        "--database",
        &database,
        "--broker",
        &broker,
        "--documents",
        &documents,
    ];
    let flags = [
        &flags[..],
        &["--keys", "15", "--duplicates", "10", "--json"],
    ]
    .concat();
    for _ in 0..4 {
        let mut run = Run::start(&flags);
        for _ in 0..random.random_range(0..3) {
            actix_rt::time::sleep(Duration::from_millis(random.random_range(50..2500))).await;
            let workers = run.workers();
            if !workers.is_empty() {
                kill(workers[random.random_range(0..workers.len())]);
            }
        }
        actix_rt::time::sleep(Duration::from_millis(random.random_range(50..2500))).await;
        if !run.runs() {
            break;
        }
        let workers = run.workers();
        run.kill();
        if random.random() {
            // Otherwise the next run meets the workers of this one while they drain.
            until(
                "the workers of a killed run end by themselves",
                async || workers.iter().all(|worker| !is_alive(*worker)),
            )
            .await;
        }
    }
    let ledger = Run::start(&flags).ledger();
    assert_holds(&ledger, DOCUMENTS, 10);
}

fn kill(process: u32) {
    // A worker may have ended in between: it is then no longer there to be killed.
    let _ = std::process::Command::new("kill")
        .args(["-KILL", &process.to_string()])
        .status();
}

fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    // Orphans may stay zombies where nobody reaps them.
    !state.is_empty() && !state.starts_with('Z')
}

#[actix_rt::test]
async fn on_sqlite_with_the_database_broker() {
    killed_at_random_moments_it_goes_on_to_the_same_end::<posta::Sqlite>(None).await;
}

#[actix_rt::test]
async fn on_postgres_with_rabbitmq() {
    let vhost = Vhost::fresh().await;
    killed_at_random_moments_it_goes_on_to_the_same_end::<posta::Postgres>(Some(vhost)).await;
}

/// The broker goes away in the middle and comes back.
#[actix_rt::test]
async fn a_restart_of_rabbitmq_is_waited_out() {
    let vhost = Vhost::alone().await;
    let (database, _, _guard) = posta::Sqlite::fresh().await;
    let broker = vhost.url();
    let documents = DOCUMENTS.to_string();
    let run = Run::start(&[
        "--database",
        &database,
        "--broker",
        &broker,
        "--documents",
        &documents,
        "--json",
    ]);
    actix_rt::time::sleep(Duration::from_secs(2)).await;
    vhost.control("rabbitmq-restart", None).await;
    let ledger = actix_rt::task::spawn_blocking(move || run.ledger())
        .await
        .expect("a ledger");
    assert_holds(&ledger, DOCUMENTS, 5);
}
