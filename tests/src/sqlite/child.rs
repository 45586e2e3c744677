//! Processes that share a file: the test binary itself, called again.
//!
//! The child runs [`run_when_asked`] as a test of that name, which does nothing unless the
//! environment says that this is a child. Its lines on standard output that begin with `> ` are
//! what it says to its parent.

use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use posta::message::{Envelope, MessageType};
use posta::store::{Fence, LeaseStore, MemberId, OutboxStore, Resource, RowId, SqliteStore, Store};
use posta::{Database as _, OrderingKey, Slot, Sqlite, Tables};

use crate::harness::sqlite::connect;

const ROLE: &str = "POSTA_TEST_SQLITE_CHILD";
const FILE: &str = "POSTA_TEST_SQLITE_FILE";

/// A child process; killed when dropped.
pub(super) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts a child in a role on a file.
    pub(super) fn start(role: &str, file: &Path) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("the test binary"))
            .args([
                "--exact",
                "sqlite::child::run_when_asked",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(ROLE, role)
            .env(FILE, file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a child process");
        let stdout = child.stdout.take().expect("its standard output");
        Self {
            child,
            lines: BufReader::new(stdout).lines(),
        }
    }

    /// The next thing that it says; `None` when it has ended.
    pub(super) fn says(&mut self) -> Option<String> {
        self.lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| line.split_once("> ").map(|(_, said)| said.to_owned()))
    }

    /// Kills it as SIGKILL does: nothing is flushed, nothing is said.
    pub(super) fn kill(&mut self) {
        self.child.kill().expect("a child that can be killed");
        self.child.wait().expect("its end");
    }

    /// Waits for its end, which must be a good one.
    pub(super) fn ends_well(mut self) {
        while self.says().is_some() {}
        assert!(
            self.child.wait().expect("its end").success(),
            "a child failed"
        );
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            self.kill();
        }
    }
}

/// A keyed message with a number.
pub(super) fn message(key: &str, number: u64) -> Envelope {
    let message_type = MessageType::new("counted").expect("a valid type");
    Envelope::builder(message_type, number.to_string().into_bytes())
        .key(Some(OrderingKey::new(key).expect("a valid key")))
        .build()
        .expect("a valid envelope")
}

/// The child's side. As a test of its own it does nothing: it is the entry of child processes.
#[test]
fn run_when_asked() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let file = std::env::var(FILE).expect("a file");
    let store = SqliteStore::connect(&file, &connect(Tables::default())).expect("a valid path");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(async {
        match role.as_str() {
            "produce" => produce(&store, 250).await,
            "dispatch" => dispatch(&store, 500).await,
            "open" => open(&store).await,
            "commit" => produce(&store, u64::MAX).await,
            other => panic!("no such role: {other}"),
        }
    });
}

/// Enqueues messages, each in a transaction that reads before it writes; says the number of each
/// that was committed.
async fn produce(store: &SqliteStore, count: u64) {
    let me = uuid::Uuid::new_v4();
    for number in 0..count {
        let mut session = store.begin().await.expect("a transaction begins");
        store.backlog(&mut session).await.expect("reads");
        let key = format!("{me}-{}", number % 5);
        let message = message(&key, number);
        let id = message.id;
        Sqlite::insert_outbox(&mut session, store.tables(), &[message])
            .await
            .expect("writes");
        session.commit().await.expect("commits");
        println!("> {id}");
    }
}

/// Dispatches its half of the lanes, until so many rows have left the outbox.
async fn dispatch(store: &SqliteStore, count: usize) {
    let me = MemberId::random();
    let ttl = Duration::from_secs(600);
    let mut session = store.begin().await.expect("a transaction begins");
    store
        .join(&mut session, &Resource::Lanes, 64, me, ttl)
        .await
        .expect("joins");
    let grants = store
        .acquire(&mut session, &Resource::Lanes, 64, me, ttl, 32)
        .await;
    session.commit().await.expect("commits");
    let grants = grants.expect("acquires");
    assert_eq!(grants.len(), 32, "half of the lanes");
    let lanes: Vec<Slot> = grants
        .iter()
        .filter_map(|grant| Slot::new(grant.number))
        .collect();
    let fences: Vec<Fence> = grants
        .into_iter()
        .map(|grant| Fence {
            resource: Resource::Lanes,
            owner: me,
            grant,
        })
        .collect();
    loop {
        let mut session = store.begin().await.expect("a transaction begins");
        let rows = store
            .pending(&mut session, &lanes, &[], 20)
            .await
            .expect("reads");
        session.commit().await.expect("commits");
        if rows.is_empty() {
            if super::processes::dispatched(store).await >= count {
                return;
            }
            tokio::task::yield_now().await;
            continue;
        }
        assert!(rows.iter().all(|row| row.attempts == 0));
        let ids: Vec<RowId> = rows.iter().map(|row| row.id).collect();
        let mut session = store.begin().await.expect("a transaction begins");
        let moved = store
            .mark_dispatched(&mut session, &fences, &ids)
            .await
            .expect("settles");
        session.commit().await.expect("commits");
        assert_eq!(moved, ids, "nobody else settles these lanes");
    }
}

/// Says that it has written, and never commits.
async fn open(store: &SqliteStore) {
    let mut session = store.begin().await.expect("a transaction begins");
    Sqlite::insert_outbox(&mut session, store.tables(), &[message("k", 0)])
        .await
        .expect("writes");
    println!("> open");
    std::future::pending::<()>().await;
}
