//! In a terminal: an editor opens, questions are asked, and Ctrl-C is pressed. `script` (of
//! util-linux) makes the terminal.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use posta::message::MessageId;
use posta::store::{LetterId, LetterState};

use super::posta::Cli;
use crate::operator::given::{bury_numbers, operator};
use crate::operator::on_both_databases;
use crate::world::{BrokerKind, TestDatabase, World};

on_both_databases!(
    an_edit_in_a_terminal_is_what_the_editor_left_and_a_person_confirmed,
    ctrl_c_changes_nothing_and_leaves_no_payload_behind,
);

/// A folder for editors and for the files that they open.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("posta-terminal-{}", MessageId::new());
        let folder = std::env::temp_dir().join(name);
        fs::create_dir_all(folder.join("tmp")).expect("a folder");
        Self(folder)
    }

    /// An editor that is a script.
    fn editor(&self, name: &str, script: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, script).expect("a script");
        format!("sh {}", path.display())
    }

    /// What posta has left in its folder for temporary files.
    fn left_behind(&self) -> usize {
        let files = fs::read_dir(self.0.join("tmp")).expect("the folder");
        files.count()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // Only space is lost if it stays.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a command in a terminal and types when it asks, if it does (what is typed before may be lost,
/// and Ctrl-C is a signal to whoever is there by then); returns its exit code and all that was on
/// the screen.
fn in_terminal(command: &Command, folder: &Folder, editor: &str, typed: &[u8]) -> (i32, String) {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(
        command
            .get_args()
            .map(|it| it.to_string_lossy().into_owned()),
    );
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let mut script = Command::new("script");
    script
        .args(["--quiet", "--return", "--command"])
        .arg(format!("exec {}", quoted.join(" ")))
        .arg("/dev/null")
        .env("VISUAL", editor)
        .env("TMPDIR", folder.0.join("tmp"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    for (name, value) in command.get_envs() {
        script.env(name, value.expect("a value"));
    }
    let mut script = script.spawn().expect("`script` of util-linux");
    let mut keyboard = script.stdin.take().expect("it is piped");
    let mut output = script.stdout.take().expect("it is piped");
    let (mut screen, mut part, mut asked) = (Vec::new(), [0; 1024], false);
    while let Ok(more @ 1..) = output.read(&mut part) {
        screen.extend_from_slice(&part[..more]);
        if !asked && String::from_utf8_lossy(&screen).contains("[y/N]") {
            asked = true;
            keyboard.write_all(typed).expect("typing");
        }
    }
    let status = script.wait().expect("its end");
    drop(keyboard);
    let screen = String::from_utf8_lossy(&screen).into_owned();
    (status.code().expect("it was not killed"), screen)
}

async fn revision<D: TestDatabase>(world: &World<D>, letter: LetterId) -> (u32, String) {
    let shown = operator(world, "test").show(letter, 0).await.unwrap();
    assert_eq!(shown.letter.state, LetterState::Dead);
    let payload = String::from_utf8(shown.letter.message.payload.to_vec()).unwrap();
    (shown.letter.revision, payload)
}

async fn an_edit_in_a_terminal_is_what_the_editor_left_and_a_person_confirmed<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let letter = bury_numbers::<D>(&world.store(), 1, 1).await[0];
    let original = revision(&world, letter).await;
    let (cli, folder) = (Cli::of(&world), Folder::new());
    let id = letter.to_string();
    let edit = cli.command(&["dead-letters", "edit", &id, "--reason", "why"]);
    let mend = folder.editor("mend", "sed -i 's/: 0/: 7/' \"$1\"");
    let with_argument = format!("{} --wait", folder.editor("wait", "sed -i s/7/8/ \"$2\""));
    let end_line = folder.editor("end", "cat \"$1\" > \"$1.new\" && mv \"$1.new\" \"$1\"");
    let fails = folder.editor("fails", "echo 1 > \"$1\"; exit 1");
    for (editor, typed, code, says) in [
        (&fails, "y\n", 1, "the editor failed"),
        (&end_line, "y\n", 3, "was left as it is"),
        (&mend, "n\n", 3, "not confirmed"),
        (&mend, "\n", 3, "not confirmed"),
        (&mend, "perhaps\n", 3, "not confirmed"),
        (&mend, "\u{4}", 3, "not confirmed"),
    ] {
        let (ended, screen) = in_terminal(&edit, &folder, editor, typed.as_bytes());
        assert_eq!(ended, code, "{editor} {typed:?}: {screen}");
        assert!(screen.contains(says), "{editor} {typed:?}: {screen}");
        assert_eq!(revision(&world, letter).await, original);
    }
    for (editor, typed, number) in [(&mend, "y\n", 7), (&with_argument, "YES\n", 8)] {
        let (ended, screen) = in_terminal(&edit, &folder, editor, typed.as_bytes());
        assert_eq!(ended, 0, "{screen}");
        let (_, payload) = revision(&world, letter).await;
        assert!(
            payload.contains(&format!("\"number\": {number}")),
            "{payload}"
        );
    }
    assert_eq!(folder.left_behind(), 0);
}

async fn ctrl_c_changes_nothing_and_leaves_no_payload_behind<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let letter = bury_numbers::<D>(&world.store(), 1, 1).await[0];
    let original = revision(&world, letter).await;
    let (cli, folder) = (Cli::of(&world), Folder::new());
    let id = letter.to_string();
    let edit = cli.command(&["dead-letters", "edit", &id, "--reason", "why"]);
    let mend = folder.editor("mend", "sed -i 's/: 0/: 7/' \"$1\"");
    // The whole group, as a terminal does it.
    let dies = folder.editor("dies", "kill -INT 0; sleep 60");
    let survives = folder.editor(
        "survives",
        "trap '' INT; sed -i 's/: 0/: 7/' \"$1\"; kill -INT 0",
    );
    for (editor, typed) in [(&dies, ""), (&survives, "y\n"), (&mend, "\u{3}")] {
        let (ended, screen) = in_terminal(&edit, &folder, editor, typed.as_bytes());
        assert_ne!(ended, 0, "{editor}: {screen}");
        assert_eq!(revision(&world, letter).await, original);
        assert_eq!(folder.left_behind(), 0, "{editor}: {screen}");
    }
}
