//! What the tests' own build has made beside them: binaries, and the crates they are linked with.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use serde_json::Value;

/// The build's outcome.
///
/// Cargo builds a package's binaries for tests of the same package only, so everything is asked for
/// here, once per run, with the arguments with which `tests/run` builds: it is there already then,
/// and asking takes a moment.
static BUILD: LazyLock<Build> = LazyLock::new(Build::ask);

struct Build {
    /// `target/<profile>`.
    folder: PathBuf,
    /// What cargo says of each thing that it has made.
    artifacts: Vec<Value>,
}

impl Build {
    fn ask() -> Self {
        let tests = std::env::current_exe().expect("the tests are a file");
        // target/<profile>/deps/posta_tests-…
        let folder = tests
            .ancestors()
            .nth(2)
            .expect("the tests are in a target folder")
            .to_owned();
        let mut build = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // What cargo says to the tests that it runs would make a cargo that they run believe that
        // build scripts have become stale, and build almost everything again.
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("CARGO_")) && name != "CARGO_HOME"
            {
                build.env_remove(name);
            }
        }
        build
            .env("CARGO_INCREMENTAL", "0")
            .args(["build", "--quiet", "--workspace", "--bins", "--tests"])
            .args(["--all-features", "--message-format=json", "--target-dir"])
            .arg(folder.parent().expect("a profile is in a target folder"));
        if folder.ends_with("release") {
            build.arg("--release");
        }
        let built = build
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo can be run");
        let said = String::from_utf8_lossy(&built.stderr);
        assert!(
            built.status.success(),
            "the workspace does not build: {said}"
        );
        let artifacts = String::from_utf8_lossy(&built.stdout)
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        Self { folder, artifacts }
    }
}

/// The path of a binary of the workspace.
pub(crate) fn binary(name: &str) -> PathBuf {
    BUILD.folder.join(name)
}

/// Where the crates are that anything was linked with.
pub(crate) fn dependencies() -> PathBuf {
    BUILD.folder.join("deps")
}

/// The path of a library that the tests are linked with.
pub(crate) fn library(name: &str) -> &'static Path {
    let library = BUILD.artifacts.iter().find_map(|artifact| {
        let target = &artifact["target"];
        let is_library = target["name"] == name
            && target["kind"].as_array()?.iter().any(|kind| kind == "lib")
            && artifact["profile"]["test"] == false;
        let files = artifact["filenames"].as_array()?;
        let mut files = files.iter().filter_map(Value::as_str);
        files.find(|file| is_library && file.ends_with(".rlib"))
    });
    Path::new(library.unwrap_or_else(|| panic!("cargo knows no library {name}")))
}
