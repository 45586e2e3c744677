//! The short run: a round on every combination, on servers of its own, since it kills them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long each combination has.
const SECONDS: u64 = 9;

/// How long the servers may take to start, on a machine that does much else.
const START: Duration = Duration::from_secs(120);

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Servers that go when this does, or when this process does.
struct Servers {
    run: Child,
    file: PathBuf,
}

impl Servers {
    /// Starts them, and comes back at once.
    fn start() -> Self {
        let name = format!("posta-faults-{}.env", std::process::id());
        let file = std::env::temp_dir().join(name);
        // They end when standard input does, however this process ends.
        let script = r#""$0" --servers "$1" & run=$!; read -r; kill -TERM "$run"; wait "$run""#;
        let mut command = Command::new("bash");
        command
            .args(["-c", script])
            .arg(root().join("tests/run"))
            .arg(&file)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped());
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("POSTA_TEST_")) {
            command.env_remove(name);
        }
        let run = command.spawn().expect("bash");
        Self { run, file }
    }

    /// Waits until they are there; the variables that tell of them.
    fn variables(&self) -> BTreeMap<String, String> {
        let began = Instant::now();
        while !self.file.exists() {
            assert!(began.elapsed() < START, "the servers do not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        let text = std::fs::read_to_string(&self.file).expect("the servers' variables");
        let variables = text.lines().filter_map(|line| {
            let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        variables.collect()
    }

    /// Ends them; nothing of them may be left.
    fn end(mut self) {
        drop(self.run.stdin.take());
        let status = self.run.wait().expect("its end");
        let mut said = String::new();
        let mut errors = self.run.stderr.take().expect("its standard error");
        let _ = std::io::Read::read_to_string(&mut errors, &mut said);
        // 143: as it was told to.
        let ended = matches!(status.code(), Some(0 | 143));
        assert!(ended && !said.contains("left behind"), "{status}: {said}");
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        drop(self.run.stdin.take());
        let _ = self.run.wait();
    }
}

/// A run on one combination, in a process of its own, and where it leaves its report.
struct Run {
    child: Child,
    folder: PathBuf,
}

impl Run {
    fn start(database: &str, broker: &str, variables: &BTreeMap<String, String>) -> Self {
        let name = format!("posta-faults-{}-{database}-{broker}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("the temporary directory can be written");
        let seed = u64::from(rand::random::<u16>());
        println!("{database}, {broker}: seed {seed}");
        let entry = ["--exact", "faults::long::run_when_asked", "--nocapture"];
        let child = Command::new(std::env::current_exe().expect("the test binary"))
            .args(entry)
            .envs(variables)
            .env("POSTA_TEST_FAULTS_SECONDS", SECONDS.to_string())
            .env("POSTA_TEST_FAULTS_SEED", seed.to_string())
            .env("POSTA_TEST_FAULTS_DATABASE", database)
            .env("POSTA_TEST_FAULTS_BROKER", broker)
            .env("POSTA_TEST_FAULTS_EVIDENCE", &folder)
            .env("POSTA_TEST_FAULTS_REPORT", folder.join("report"))
            .stdout(Stdio::null())
            .spawn();
        let child = child.expect("a child process");
        Self { child, folder }
    }

    /// Waits for its end, and looks at its last line.
    fn judged(mut self) {
        let status = self.child.wait().expect("its end");
        let report = std::fs::read_to_string(self.folder.join("report")).unwrap_or_default();
        assert!(status.success(), "{status}: {report}");
        let last = report.lines().last().unwrap_or_default();
        let last: serde_json::Value = serde_json::from_str(last).expect("a line of JSON");
        let number = |name: &str| last[name].as_u64().expect("a number");
        for wrong in ["lost", "doubled", "out_of_order", "broken"] {
            assert_eq!(number(wrong), 0, "{report}");
        }
        assert!(number("messages") > 0 && number("faults") > 0, "{report}");
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whatever happens to processes, servers and the network between them, on every combination. Two
/// combinations run beside each other that share no server.
#[test]
fn every_guarantee_holds_whatever_happens_to_processes_servers_and_network() {
    let servers = Servers::start();
    let alone = Run::start("sqlite", "database", &BTreeMap::new());
    let variables = servers.variables();
    let rabbitmq = Run::start("sqlite", "rabbitmq", &variables);
    alone.judged();
    let postgres = Run::start("postgres", "database", &variables);
    rabbitmq.judged();
    postgres.judged();
    Run::start("postgres", "rabbitmq", &variables).judged();
    servers.end();
}

/// Says what is wrong with its arguments, before it starts anything.
#[test]
fn the_script_refuses_arguments_that_it_does_not_know() {
    let refused = [
        ("--hours 1", "no such option: --hours"),
        ("--minutes", "--minutes takes a value"),
        ("--minutes 0 --seed 1", "--minutes is at least 1"),
        ("--minutes ten --seed 1", "--minutes takes a number"),
        ("--minutes -1 --seed 1", "--minutes takes a number"),
        ("--minutes 1", "--seed is missing"),
        ("--seed 1", "--minutes is missing"),
        ("--minutes 1 --seed x", "--seed takes a number"),
        (
            "--minutes 1 --seed 1 --database mysql",
            "--database takes one of",
        ),
        (
            "--minutes 1 --seed 1 --broker kafka",
            "--broker takes one of",
        ),
    ];
    for (arguments, told) in refused {
        let mut script = Command::new(root().join("tests/faults"));
        let output = script.args(arguments.split(' ')).output().expect("bash");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}: {errors}");
        assert!(errors.contains(told), "{arguments}: {errors}");
        assert!(errors.contains("usage: "), "{arguments}: {errors}");
    }
}
