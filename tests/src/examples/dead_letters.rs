use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::program::{Program, command};
use crate::harness::postgres;
use crate::harness::rabbitmq::Vhost;
use crate::harness::sqlite::SqliteFile;

/// Where the bank lives.
struct Place<'p> {
    database: String,
    broker: String,
    folder: &'p Path,
}

/// What the reader is asked to repair.
const REPAIRED: &str = r#"{"account":"cleo","number":12,"amount":"12.00"}"#;

#[actix_rt::test]
async fn the_story_goes_as_told_and_its_last_letter_is_repaired_by_hand_on_sqlite_alone() {
    let folder = SqliteFile::absent();
    let place = Place {
        database: folder.url(),
        broker: "database".to_owned(),
        folder: folder.directory(),
    };
    place.goes_as_told();
    place.is_repaired_by_hand();
}

#[actix_rt::test]
async fn the_story_goes_as_told_and_its_last_letter_is_repaired_by_hand_on_servers() {
    let (folder, vhost) = (SqliteFile::absent(), Vhost::fresh().await);
    let (_, _, database) = postgres::fresh().await;
    let place = Place {
        database: database.url(),
        broker: vhost.url(),
        folder: folder.directory(),
    };
    place.goes_as_told();
    place.is_repaired_by_hand();
}

#[test]
fn without_arguments_it_makes_its_file_anew_and_spares_one_that_is_not_its_own() {
    let folder = SqliteFile::absent();
    let tell = || {
        let mut story = command("dead_letters");
        story.arg("--unattended").current_dir(folder.directory());
        story.output().expect("an example can be run")
    };
    let file = folder.directory().join("dead_letters.db");
    fs::write(&file, "somebody's letters").expect("a file can be written");
    let refused = tell();
    assert!(!refused.status.success());
    assert!(stderr(&refused).contains("left alone"), "{refused:?}");
    let kept = fs::read_to_string(&file).expect("the file is there");
    assert_eq!(kept, "somebody's letters");
    fs::remove_file(&file).expect("it can be removed");
    for _ in 0..2 {
        let told = tell();
        assert!(told.status.success(), "{}", stderr(&told));
    }
}

impl Place<'_> {
    /// Tells the story, and not twice on one database.
    fn goes_as_told(&self) {
        let told = self.run(self.dead_letters(&["--unattended"]));
        assert!(told.status.success(), "{}", stderr(&told));
        let told = stdout(&told);
        for line in ["1. ", "2. ", "3. ", "4. "] {
            assert!(told.lines().any(|told| told.starts_with(line)), "{told}");
        }
        // How long a database's name is, is not the story's doing.
        let own = told.lines().filter(|line| !line.contains(&self.database));
        let columns = own.map(|line| line.chars().count()).max();
        assert!(columns.is_some_and(|columns| columns <= 100), "{told}");
        let again = self.run(self.dead_letters(&["--unattended"]));
        assert!(!again.status.success());
        assert!(stderr(&again).contains("it is told once"), "{again:?}");
    }

    /// Does with the last letter what the story says that the reader can do.
    fn is_repaired_by_hand(&self) {
        let look = self.run(self.dead_letters(&["look"]));
        assert!(!look.status.success(), "something is dead");
        let list = self.posta(&["dead-letters", "list"]);
        assert_eq!(
            list.lines().count(),
            3,
            "a heading, one letter, its error: {list}"
        );
        let columns: Vec<&str> = list
            .lines()
            .nth(1)
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        let letter = columns[0];
        assert!(
            columns.contains(&"permanent") && columns.contains(&"+2"),
            "{list}"
        );
        let shown = self.posta(&["dead-letters", "show", letter, "--payload"]);
        assert_eq!(shown, REPAIRED.replace("12.00", "twelve"));
        let file = self.folder.join("repaired.json");
        fs::write(&file, REPAIRED).expect("a file can be written");
        let file = file.to_str().expect("a path in UTF-8");
        let deed = ["--reason", "an amount", "--yes"];
        let with = |words: &[&'static str]| -> Vec<&str> {
            let (first, rest) = words.split_at(2);
            [first, &[letter], rest, &deed].concat()
        };
        let mut edit = with(&["dead-letters", "edit"]);
        edit.extend(["--payload-file", file]);
        self.posta(&edit);
        let mut service = Program::start("dead_letters", self.folder, |service| {
            service.arg("serve");
            self.set(service);
        });
        service.line_with("the service runs");
        self.posta(&with(&["dead-letters", "replay"]));
        let look = self.run(self.dead_letters(&["look", "--patience", "60"]));
        assert!(look.status.success(), "{}", stdout(&look));
        service.terminate();
        let record = self.posta(&["record"]);
        for action in ["edit", "replay"] {
            assert!(record.contains(action), "{record}");
        }
    }

    fn set(&self, command: &mut Command) {
        command
            .env("DEAD_LETTERS_DATABASE", &self.database)
            .env("DEAD_LETTERS_BROKER", &self.broker);
    }

    fn dead_letters(&self, arguments: &[&str]) -> Command {
        let mut dead_letters = command("dead_letters");
        dead_letters.args(arguments);
        self.set(&mut dead_letters);
        dead_letters
    }

    /// What `posta` answers.
    fn posta(&self, arguments: &[&str]) -> String {
        let mut posta = command("posta");
        posta.args(arguments).env("POSTA_DATABASE", &self.database);
        posta.env("USER", "reader");
        let answer = self.run(posta);
        assert!(
            answer.status.success(),
            "{arguments:?}: {}",
            stderr(&answer)
        );
        stdout(&answer)
    }

    fn run(&self, mut command: Command) -> Output {
        let output = command.current_dir(self.folder).output();
        output.expect("a program can be run")
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
