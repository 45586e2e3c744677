use std::process::{Command, Stdio};

use posta::message::RawMessage;
use posta::store::LetterState;

use super::posta::Cli;
use crate::operator::given::{bury, bury_numbers, letter, numbered, operator, park};
use crate::operator::on_both_databases;
use crate::world::{BrokerKind, TestDatabase, World};

on_both_databases!(
    times_at_the_ends_of_the_calendar_are_times,
    what_contradicts_itself_is_refused_before_anything_is_asked,
    a_letter_that_is_named_twice_is_one_letter,
    a_payload_of_any_depth_is_shown,
    a_reader_that_has_gone_is_no_failure,
);

async fn times_at_the_ends_of_the_calendar_are_times<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    bury_numbers::<D>(&world.store(), 1, 1).await;
    let cli = Cli::of(&world);
    for from in ["4294967295d", "0000-01-01", "0000-01-01T00:00:00+12:00"] {
        let listed = cli.json(&["dead-letters", "list", "--from", from]).await;
        assert_eq!(listed.len(), 1, "{from}");
        let why = ["--reason", "why", "--yes"];
        let mut again = vec!["redispatch", "--from", from];
        again.extend(why);
        assert_eq!(cli.run(&again).await.code, 4, "{from}");
        let mut replay = vec!["dead-letters", "replay", "--from", from];
        replay.extend(["--before", "9999-12-31T23:59:59-12:00"]);
        replay.extend([
            "--inbox-retention",
            "4294967295d",
            "--reason",
            "why",
            "--yes",
        ]);
        let begun = cli.run(&replay).await;
        assert_eq!(begun.code, 0, "{from}: {begun:?}");
        assert!(!begun.stdout.contains("retention"), "{begun:?}");
        let nobodys = "beware: 1 would wait until a process handles";
        assert!(begun.stdout.contains(nobodys), "{begun:?}");
    }
    assert_eq!(cli.json(&["replay-runs", "list"]).await.len(), 3);
}

async fn what_contradicts_itself_is_refused_before_anything_is_asked<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let parked = park::<D>(&world.store(), "k", 2).await;
    let cli = Cli::of(&world);
    let number = parked.to_string();
    let long = "x".repeat(2_001);
    let wrong: [&[&str]; 6] = [
        &["skip", "--not-parked", "--reason", "why", "--yes"],
        &[
            "replay",
            &number,
            "--rate",
            "0",
            "--reason",
            "why",
            "--dry-run",
        ],
        &[
            "replay",
            &number,
            "--rate",
            "100001",
            "--reason",
            "why",
            "--dry-run",
        ],
        &[
            "replay",
            &number,
            "--failures-max",
            "0",
            "--reason",
            "why",
            "--dry-run",
        ],
        &["discard", &number, "--reason", " ", "--dry-run"],
        &["discard", &number, "--reason", &long, "--dry-run"],
    ];
    for arguments in wrong {
        let arguments = [&["dead-letters"], arguments].concat();
        let answer = cli.run(&arguments).await;
        assert_eq!(answer.code, 2, "{arguments:?}: {answer:?}");
        assert_eq!(answer.stdout, "", "{arguments:?}");
    }
    let operator = operator(&world, "test");
    let letter = operator.show(parked, 0).await.unwrap().letter;
    assert!(letter.parked && letter.state == LetterState::Dead);
}

async fn a_letter_that_is_named_twice_is_one_letter<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let letters = bury_numbers::<D>(&world.store(), 2, 1).await;
    let cli = Cli::of(&world);
    let [one, other] = [letters[0], letters[1]].map(|letter| letter.to_string());
    let twice = ["dead-letters", "discard", &other, &one, &other, &one];
    let twice = [&twice[..], &["--reason", "why", "--yes"]].concat();
    let answer = cli.json(&twice).await;
    assert_eq!(answer[0]["letters"].as_array().map(Vec::len), Some(2));
}

async fn a_payload_of_any_depth_is_shown<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let deep = format!("{}{}", "[".repeat(400_000), "]".repeat(400_000));
    let message = RawMessage {
        payload: deep.into_bytes().into(),
        ..numbered("k", 0).into()
    };
    let deep = bury::<D>(&world.store(), &[letter(message, "too deep")]).await[0].to_string();
    let cli = Cli::of(&world);
    let shown = cli.done(&["dead-letters", "show", &deep]).await;
    assert!(shown.contains("  [[[[") && shown.len() < 10_000, "{shown}");
    let edit = ["dead-letters", "edit", &deep, "--payload-file", "-"];
    let edit = [&edit[..], &["--reason", "why", "--yes"]].concat();
    let edited = cli.run_with(&edit, b"{}").await;
    assert_eq!(edited.code, 0, "{edited:?}");
}

async fn a_reader_that_has_gone_is_no_failure<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let message = RawMessage {
        payload: vec![b'x'; 500_000].into(),
        ..numbered("k", 0).into()
    };
    let id = bury::<D>(&world.store(), &[letter(message, "it broke")]).await[0].to_string();
    let cli = Cli::of(&world);
    let commands: [(&[&str], i32); 4] = [
        (&["dead-letters", "list"], 0),
        (&["dead-letters", "show", &id, "--payload"], 0),
        (&["dead-letters", "show", "123456789"], 4),
        (&["dead-letters", "discard", &id, "--reason", "why"], 3),
    ];
    for (arguments, code) in commands {
        assert_eq!(unheard(cli.command(arguments)), code, "{arguments:?}");
    }
}

/// Runs a command whose answers and errors nobody reads: both pipes are closed at their other end.
fn unheard(mut command: Command) -> i32 {
    let closed = || {
        let (_, writer) = std::io::pipe().expect("a pipe");
        Stdio::from(writer)
    };
    command
        .stdin(Stdio::null())
        .stdout(closed())
        .stderr(closed());
    let status = command.status().expect("the binary runs");
    status.code().expect("it was not killed")
}
