use super::binary::{Run, assert_holds};
use crate::harness::rabbitmq::Vhost;
use crate::world::TestDatabase;

/// A run that kills its workers once each ends with nothing lost, doubled or out of order; a second
/// one prints the same ledger, and one that asks for more goes on.
async fn a_run_holds_and_can_grow<D: TestDatabase>(vhost: Option<Vhost>) {
    let (database, _, _guard) = D::fresh().await;
    let broker = vhost
        .as_ref()
        .map_or_else(|| "database".to_owned(), Vhost::url);
    let run = |documents: &str| {
        let flags = [
            "--database",
            &database,
            "--broker",
            &broker,
            "--documents",
            documents,
        ];
        Run::start(
            &[
                &flags[..],
                &["--keys", "20", "--duplicates", "10", "--json"],
            ]
            .concat(),
        )
        .ledger()
    };
    let first = run("300");
    assert_holds(&first, 300, 10);
    assert_eq!(first["kills"], 2, "{first}");
    assert_eq!(
        run("300"),
        first,
        "a run that is over prints its ledger again"
    );
    assert_holds(&run("400"), 400, 10);
}

#[actix_rt::test]
async fn on_sqlite_with_the_database_broker() {
    a_run_holds_and_can_grow::<posta::Sqlite>(None).await;
}

#[actix_rt::test]
async fn on_sqlite_with_rabbitmq() {
    a_run_holds_and_can_grow::<posta::Sqlite>(Some(Vhost::fresh().await)).await;
}

#[actix_rt::test]
async fn on_postgres_with_the_database_broker() {
    a_run_holds_and_can_grow::<posta::Postgres>(None).await;
}

#[actix_rt::test]
async fn on_postgres_with_rabbitmq() {
    a_run_holds_and_can_grow::<posta::Postgres>(Some(Vhost::fresh().await)).await;
}

/// What `cargo run` does without any flag, only smaller: a file of its own, which is gone at the
/// end.
#[test]
fn without_flags_it_leaves_nothing_behind() {
    let temporary =
        std::env::temp_dir().join(format!("main-job-{}", uuid::Uuid::now_v7().simple()));
    std::fs::create_dir(&temporary).expect("a folder");
    let output = std::process::Command::new(super::binary::path())
        .args(["--documents", "100", "--keys", "10"])
        .env("TMPDIR", &temporary)
        .output()
        .expect("the binary runs");
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(
        stdout.contains("Nothing lost, nothing doubled, nothing out of order."),
        "{stdout}"
    );
    assert!(
        stdout.lines().all(|line| line.chars().count() <= 100),
        "{stdout}"
    );
    std::fs::remove_dir(&temporary).expect("it is empty");
}
