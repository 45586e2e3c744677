use std::path::{Path, PathBuf};
use std::process::Command;

use super::words;
use crate::harness::build;

/// What the files of mistakes use.
const CRATES: [&str; 2] = ["posta", "serde"];

/// The compiler, with the crates that this test binary is linked with.
pub(super) struct Compiler {
    /// The name of each crate, and where it is.
    crates: Vec<(&'static str, &'static Path)>,
    /// Where their dependencies are.
    dependencies: PathBuf,
}

impl Compiler {
    /// With the crates as they were built.
    pub(super) fn find() -> Self {
        Self {
            crates: CRATES.map(|name| (name, build::library(name))).into(),
            dependencies: build::dependencies(),
        }
    }

    /// What the compiler says to a file: an error if it has nothing against it.
    pub(super) fn says(&self, file: &Path) -> Result<String, String> {
        let mut compile = Command::new("rustc");
        compile
            // Where cargo calls it for the workspace's crates, so that it finds their sources.
            .current_dir(workspace())
            .args(["--edition=2024", "--crate-type=bin", "--crate-name=mistake"])
            // Verbose, since it shortens the names of long types otherwise.
            .args(["--verbose", "--color=never", "--diagnostic-width=140"])
            .arg("--emit=metadata")
            .arg("--out-dir")
            .arg(std::env::temp_dir())
            .arg("-L")
            .arg(format!("dependency={}", self.dependencies.display()));
        for (name, library) in &self.crates {
            let library = format!("{name}={}", library.display());
            compile.arg("--extern").arg(library);
        }
        let compiled = compile.arg(file).output().expect("the compiler can be run");
        match compiled.status.success() {
            true => Err("it compiles".to_owned()),
            false => Ok(words::of(&text(&compiled.stderr))),
        }
    }
}

/// The workspace's folder.
pub(super) fn workspace() -> &'static Path {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    workspace.expect("the tests are in the workspace")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
