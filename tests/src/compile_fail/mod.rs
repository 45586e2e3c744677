//! Every mistake that a person makes with the derive macros has a file in `ui/fail`, named by what
//! is wrong, with what the compiler says to it.
//!
//! After a change of words: `POSTA_TEST_OVERWRITE=1 cargo test -p posta-tests compile_fail`, and
//! read the difference.
//!
//! The compiler is called directly, on the crates that the tests themselves are linked with. A
//! crate for such tests would do it through cargo, in a target folder of its own, and compile all
//! dependencies once more, SQLite among them: a tenth of the time that all tests take together.

mod compiler;
mod words;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use self::compiler::Compiler;

/// Files compiled at a time.
const WORKERS: usize = 2;

#[test]
fn each_mistake_is_named_at_its_token() {
    let compiler = Compiler::find();
    let overwrite = std::env::var_os("POSTA_TEST_OVERWRITE").is_some();
    let mistakes = mistakes();
    assert!(mistakes.len() > 50, "only {} mistakes", mistakes.len());
    let left = Mutex::new(mistakes.iter());
    let faults = Mutex::new(Vec::new());
    let work = || {
        while let Some(mistake) = { left.lock().expect("no panic").next() } {
            let expected = compiler::workspace().join(mistake).with_extension("stderr");
            let fault = match compiler.says(mistake) {
                Ok(said) if overwrite => {
                    std::fs::write(&expected, said).expect("the words are written");
                    None
                }
                said => fault(&expected, said),
            };
            if let Some(fault) = fault {
                let fault = format!("--- {}\n{fault}", mistake.display());
                faults.lock().expect("no panic").push(fault);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(work);
        }
    });
    let faults = faults.into_inner().expect("no panic");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What is wrong with what the compiler said of a mistake.
fn fault(expected: &Path, said: Result<String, String>) -> Option<String> {
    let expected = std::fs::read_to_string(expected).unwrap_or_default();
    match said {
        Ok(said) if said == expected => None,
        Ok(said) => Some(format!("expected:\n{expected}\nsaid:\n{said}")),
        Err(why) => Some(why),
    }
}

/// The files, as seen from the workspace.
fn mistakes() -> Vec<PathBuf> {
    let folder = Path::new("tests/ui/fail");
    let entries = std::fs::read_dir(compiler::workspace().join(folder));
    let entries = entries.expect("the folder of mistakes");
    let mut mistakes: Vec<PathBuf> = entries
        .map(|entry| folder.join(entry.expect("a file").file_name()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    mistakes.sort();
    mistakes
}
