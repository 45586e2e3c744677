use std::process::Command;

use super::posta::{Cli, answer, path};
use crate::harness::sqlite::SqliteFile;
use crate::operator::on_both_databases;
use crate::world::{BrokerKind, TestDatabase, World};

on_both_databases!(
    what_is_not_there_has_its_exit_code,
    a_wrong_command_line_has_its_exit_code
);

async fn what_is_not_there_has_its_exit_code<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let cli = Cli::of(&world);
    let why = ["--reason", "why not", "--yes"];
    let missing: [&[&str]; 9] = [
        &["dead-letters", "list"],
        &["dead-letters", "groups"],
        &["dead-letters", "show", "7"],
        &["dead-letters", "replay", "7"],
        &["dead-letters", "discard", "7"],
        &["replay-runs", "list"],
        &["replay-runs", "show", "7"],
        &["replay-runs", "cancel", "7"],
        &["record"],
    ];
    for arguments in missing {
        let mut arguments = arguments.to_vec();
        if matches!(arguments[1..], ["replay" | "discard" | "cancel", _]) {
            arguments.extend(why);
        }
        let answer = cli.run(&arguments).await;
        assert_eq!(answer.code, 4, "{arguments:?}: {answer:?}");
        assert!(
            answer.stdout.is_empty() && !answer.stderr.is_empty(),
            "{answer:?}"
        );
    }
    let nothing = cli
        .run(&["redispatch", "--all", "--reason", "why not", "--yes"])
        .await;
    assert_eq!(nothing.code, 4, "{nothing:?}");
}

async fn a_wrong_command_line_has_its_exit_code<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let cli = Cli::of(&world);
    let wrong: [&[&str]; 10] = [
        &["dead-letters"],
        &["dead-letters", "list", "--limit", "0"],
        &["dead-letters", "list", "--from", "yesterday"],
        &["dead-letters", "list", "--parked", "--not-parked"],
        // Nothing is selected by accident.
        &["dead-letters", "replay", "--reason", "why"],
        &["dead-letters", "discard", "--reason", "why", "--yes"],
        &["redispatch", "--reason", "why"],
        // Everything that changes something has a reason.
        &["dead-letters", "replay", "7"],
        &[
            "dead-letters",
            "skip",
            "7",
            "--reason",
            " ",
            "--yes",
            "--who",
            "",
        ],
        &["dead-letters", "list", "--tables", "Not A Name"],
    ];
    for arguments in wrong {
        let answer = cli.run(arguments).await;
        assert_eq!(answer.code, 2, "{arguments:?}: {answer:?}");
    }
}

/// The binary without a world.
fn bare(arguments: &[&str]) -> super::posta::Answer {
    let mut command = Command::new(path());
    command
        .args(arguments)
        .env_remove("POSTA_DATABASE")
        .env_remove("USER");
    answer(command, &[])
}

#[test]
fn a_database_that_cannot_be_reached_has_its_exit_code_and_no_password_is_shown() {
    for url in [
        "postgres://root:hunter2@127.0.0.1:1/app",
        "postgresql://root:hunter2@127.0.0.1:1/app?sslmode=disable",
    ] {
        let answer = bare(&["status", "--database", url]);
        assert_eq!(answer.code, 5, "{answer:?}");
        assert!(!answer.stderr.contains("hunter2"), "{answer:?}");
    }
    for url in [
        "mysql://root:hunter2@c/d",
        "postgres://root:hunter2@[bad/app",
        // What is meant for PostgreSQL and is no URL of it.
        "root:hunter2@127.0.0.1/app",
        "//root:hunter2@127.0.0.1/app",
        "host=127.0.0.1 user=root password=hunter2 dbname=app",
    ] {
        for command in [&["status"][..], &["migrate", "--yes"]] {
            let answer = bare(&[command, &["--database", url]].concat());
            assert_ne!(answer.code, 0, "{answer:?}");
            assert!(!answer.stderr.contains("hunter2"), "{answer:?}");
        }
    }
    assert_eq!(bare(&["status"]).code, 2, "no database was named");
}

#[test]
fn a_file_that_is_not_there_is_made_by_migrate_alone() {
    let file = SqliteFile::absent();
    let url = file.url();
    let looked = bare(&["status", "--database", &url]);
    assert_eq!(looked.code, 5, "{looked:?}");
    assert!(!file.path().exists(), "looking made a file");
    let printed = bare(&["migrate", "--print", "--database", &url]);
    assert_eq!(printed.code, 0, "{printed:?}");
    assert!(
        printed.stdout.contains("CREATE TABLE posta_outbox"),
        "{printed:?}"
    );
    assert!(!file.path().exists(), "printing made a file");
    let asked = bare(&["migrate", "--database", &url]);
    assert_eq!(asked.code, 3, "{asked:?}");
    let old = bare(&["status", "--database", &url]);
    assert_eq!(old.code, 1, "the tables are missing: {old:?}");
    assert!(old.stderr.contains("posta migrate"), "{old:?}");
    let made = bare(&["migrate", "--yes", "--database", &url]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.stdout.contains("migrated: 2 failure"), "{made:?}");
    let again = bare(&["migrate", "--database", &url]);
    assert_eq!(
        (again.code, again.stdout.as_str()),
        (0, "the tables are up to date\n")
    );
    let status = bare(&["status", "--database", &url]);
    assert_eq!(status.code, 0, "{status:?}");
    let nobody = bare(&[
        "dead-letters",
        "discard",
        "1",
        "--reason",
        "r",
        "--yes",
        "--database",
        &url,
    ]);
    assert_eq!(nobody.code, 2, "{nobody:?}");
    assert!(nobody.stderr.contains("--who"), "{nobody:?}");
}

#[test]
fn every_help_fits_and_tells_the_exit_codes() {
    let commands: [&[&str]; 20] = [
        &[],
        &["status"],
        &["migrate"],
        &["dead-letters"],
        &["dead-letters", "list"],
        &["dead-letters", "groups"],
        &["dead-letters", "show"],
        &["dead-letters", "replay"],
        &["dead-letters", "edit"],
        &["dead-letters", "skip"],
        &["dead-letters", "discard"],
        &["dead-letters", "restore"],
        &["replay-runs"],
        &["replay-runs", "list"],
        &["replay-runs", "show"],
        &["replay-runs", "pause"],
        &["replay-runs", "resume"],
        &["replay-runs", "cancel"],
        &["redispatch"],
        &["record"],
    ];
    for command in commands {
        for help in ["--help", "-h"] {
            let mut arguments = command.to_vec();
            arguments.push(help);
            let answer = bare(&arguments);
            assert_eq!(answer.code, 0);
            for line in answer.stdout.lines() {
                assert!(line.chars().count() <= 100, "{arguments:?}: {line}");
            }
        }
    }
    let help = bare(&["--help"]).stdout;
    for code in 0..=5 {
        assert!(help.contains(&format!("\n  {code}  ")), "{help}");
    }
}
