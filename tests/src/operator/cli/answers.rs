use posta::message::RawMessage;
use posta::store::{NewDeadLetter, Origin};

use super::posta::Cli;
use crate::operator::given::{bury, bury_numbers, letter, numbered, park};
use crate::operator::on_both_databases;
use crate::world::{BrokerKind, TestDatabase, World};

on_both_databases!(
    a_backlog_is_listed_in_a_hundred_columns,
    a_letter_is_shown_whole_in_json_and_byte_for_byte,
    foreign_texts_do_not_reach_the_terminal,
);

/// A backlog with everything in it.
async fn backlog<D: TestDatabase>(world: &World<D>) {
    let store = world.store();
    park::<D>(&store, "customer-4711", 12).await;
    bury_numbers::<D>(&store, 10, 3).await;
    let long = format!(
        "could not reach {}: timed out",
        "ledger.internal/".repeat(30)
    );
    let letters = [
        letter(numbered(&"ключ-".repeat(20), 0), &long),
        NewDeadLetter {
            origin: Origin::Dispatch,
            reason: "unroutable",
            ..letter(numbered("c", 0), "no queue took it")
        },
        NewDeadLetter {
            reason: "malformed",
            ..letter(RawMessage::default(), "message id is missing")
        },
        NewDeadLetter {
            origin: Origin::Consumer("a-consumer-with-a-rather-long-name".repeat(2)),
            ..letter(numbered("漢字漢字", 0), &long)
        },
    ];
    bury::<D>(&store, &letters).await;
}

async fn a_backlog_is_listed_in_a_hundred_columns<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    backlog(&world).await;
    let cli = Cli::of(&world);
    let list = cli.done(&["dead-letters", "list"]).await;
    assert_eq!(list.lines().count(), 1 + 2 * 35, "{list}");
    assert!(list.starts_with("letter  dead since"), "{list}");
    assert!(
        list.contains("+12") && list.contains("(dispatch)") && list.contains('…'),
        "{list}"
    );
    let page = cli.done(&["dead-letters", "list", "--limit", "5"]).await;
    assert!(page.contains("the next page: --after "), "{page}");
    let parked = cli.json(&["dead-letters", "list", "--parked"]).await;
    assert_eq!(parked.len(), 1);
    assert_eq!(
        (&parked[0]["key"], &parked[0]["successors"]),
        (&"customer-4711".into(), &12.into())
    );
    for (filter, count) in [
        (["--consumer", "effects"], 33),
        (["--type", "test.numbered"], 34),
        (["--kind", "malformed"], 1),
        (["--error", "timed out"], 2),
        (["--key", "k3"], 3),
        (["--from", "1h"], 35),
        (["--limit", "7"], 7),
    ] {
        let mut arguments = vec!["dead-letters", "list"];
        arguments.extend(filter);
        assert_eq!(cli.json(&arguments).await.len(), count, "{filter:?}");
    }
    assert_eq!(
        cli.run(&["dead-letters", "list", "--before", "1h"])
            .await
            .code,
        4
    );
    assert_eq!(
        cli.json(&["dead-letters", "list", "--dispatch"])
            .await
            .len(),
        1
    );
    let groups = cli.done(&["dead-letters", "groups"]).await;
    assert!(groups.contains("it broke"), "{groups}");
    let groups = cli.json(&["dead-letters", "groups"]).await;
    assert_eq!(
        groups[0]["letters"], 31,
        "the largest comes first: {groups:?}"
    );
    let status = cli.done(&["status"]).await;
    assert!(
        status.contains("effects") && status.contains("; 1 dead letter\n"),
        "{status}"
    );
    let status = cli.json(&["status"]).await;
    assert_eq!(status[0]["outbox"]["dead_letters"], 1);
}

async fn a_letter_is_shown_whole_in_json_and_byte_for_byte<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let parked = park::<D>(&store, "k", 12).await.to_string();
    let bytes: Vec<u8> = (0..=255).collect();
    let message = RawMessage {
        payload: bytes.clone().into(),
        ..numbered("k", 0).into()
    };
    let odd = bury::<D>(&store, &[letter(message, "it broke")]).await[0].to_string();
    let cli = Cli::of(&world);
    let shown = cli.done(&["dead-letters", "show", &parked]).await;
    for part in [
        "its key waits: 12 behind it",
        "\"number\": 0,",
        "behind it, first",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let shown = cli.json(&["dead-letters", "show", &parked]).await.remove(0);
    assert_eq!(shown["state"], "dead");
    assert_eq!(shown["first_successors"].as_array().unwrap().len(), 10);
    let text = cli.done(&["dead-letters", "show", &odd]).await;
    assert!(text.contains("00000000  00 01 02"), "{text}");
    let json = cli.json(&["dead-letters", "show", &odd]).await.remove(0);
    assert!(json["payload_hex"].as_str().unwrap().ends_with("fdfeff"));
    let payload = std::process::Command::new(super::posta::path())
        .args(["dead-letters", "show", &odd, "--payload"])
        .args([
            "--database",
            &world.database_url,
            "--tables",
            world.tables.name(),
        ])
        .output()
        .unwrap();
    assert_eq!(payload.stdout, bytes);
}

async fn foreign_texts_do_not_reach_the_terminal<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let bell = "a\u{1b}[2Jb\u{7}c\u{202e}d";
    let message = RawMessage {
        message_type: Some(bell.to_owned()),
        key: Some(bell.to_owned()),
        headers: [("h".to_owned(), bell.to_owned())].into(),
        payload: bell.as_bytes().to_vec().into(),
        ..numbered("k", 0).into()
    };
    let id = bury::<D>(&world.store(), &[letter(message, bell)]).await[0].to_string();
    let cli = Cli::of(&world);
    let commands: [&[&str]; 4] = [
        &["dead-letters", "list"],
        &["dead-letters", "groups"],
        &["dead-letters", "show", &id],
        &["dead-letters", "replay", &id, "--reason", "r", "--dry-run"],
    ];
    for command in commands {
        let answer = cli.done(command).await;
        let foreign = |c: &char| (c.is_control() && *c != '\n') || *c == '\u{202e}';
        assert_eq!(answer.chars().find(foreign), None, "{answer:?}");
    }
}
