use posta::message::MessageType;
use posta::store::{LetterState, RecordStore as _, RunState, Store as _};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::posta::{Cli, values};
use crate::operator::given::{bury_numbers, operator, park};
use crate::operator::on_both_databases;
use crate::world::effects::{Verdict, effects_of, judge, table};
use crate::world::service::{
    EFFECTS, Fate, Numbered, effects_service, enqueue, expected, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, until};

on_both_databases!(
    nothing_changes_without_a_confirmation,
    letters_are_edited_replayed_skipped_discarded_and_restored,
    a_run_is_begun_and_steered,
    rows_go_out_again,
    a_redispatch_that_breaks_off_says_how_the_rest_goes,
    a_letter_is_recalled,
    a_dry_run_says_how_long_ago_a_handler_was_announced,
);

/// The arguments, and a reason.
fn because<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = arguments.to_vec();
    arguments.extend(["--reason", "ticket 12"]);
    arguments
}

/// The same, confirmed.
fn yes<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = because(arguments);
    arguments.push("--yes");
    arguments
}

async fn nothing_changes_without_a_confirmation<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let parked = park::<D>(&world.store(), "k", 3).await.to_string();
    let cli = Cli::of(&world);
    let operator = operator(&world, "test");
    let changes: [&[&str]; 6] = [
        &["dead-letters", "replay", &parked],
        &["dead-letters", "replay", "--all"],
        &["dead-letters", "skip", &parked],
        &["dead-letters", "discard", "--key", "k"],
        &[
            "dead-letters",
            "edit",
            &parked,
            "--content-type",
            "text/plain",
        ],
        &["dead-letters", "edit", &parked, "--payload-file", "-"],
    ];
    for change in changes {
        let asked = cli.run_with(&because(change), b"{}").await;
        assert_eq!(asked.code, 3, "{change:?}: {asked:?}");
        assert!(!asked.stdout.is_empty(), "the dry run is shown: {change:?}");
        assert!(asked.stderr.contains("--yes"), "{asked:?}");
        let mut dry = because(change);
        dry.push("--dry-run");
        let dry = cli.run_with(&dry, b"{}").await;
        assert_eq!((dry.code, &dry.stdout), (0, &asked.stdout), "{change:?}");
        let mut json = because(change);
        json.extend(["--dry-run", "--json"]);
        let json = cli.run_with(&json, b"{}").await;
        assert_eq!(json.code, 0, "{json:?}");
        let found = values(&json.stdout);
        assert_eq!(found.len(), 1, "one object: {json:?}");
        assert!(found[0]["dry_run"].is_object(), "{json:?}");
    }
    assert!(operator.record(None, 1).await.unwrap().is_empty());
    assert!(operator.runs(1).await.unwrap().is_empty());
}

async fn letters_are_edited_replayed_skipped_discarded_and_restored<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let edited = park::<D>(&store, "k0", 2).await;
    let skipped = park::<D>(&store, "k1", 2).await;
    let letters = bury_numbers::<D>(&store, 1, 1).await;
    let cli = Cli::of(&world);
    let operator = operator(&world, "test");
    let state = async |id| operator.show(id, 0).await.unwrap().letter.state;
    let (edit, skip, plain) = (
        edited.to_string(),
        skipped.to_string(),
        letters[0].to_string(),
    );

    let payload = serde_json::to_vec(&Numbered {
        key: "k0".to_owned(),
        number: 0,
        fate: Fate::FailTimes(0),
    })
    .unwrap();
    let answer = cli
        .run_with(
            &yes(&["dead-letters", "edit", &edit, "--payload-file", "-"]),
            &payload,
        )
        .await;
    assert_eq!(answer.code, 0, "{answer:?}");
    for part in [
        "-  \"fate\": \"Succeed\"",
        "+    \"FailTimes\": 0",
        "has revision 1",
    ] {
        assert!(answer.stdout.contains(part), "{part}: {answer:?}");
    }
    let replayed = cli.done(&yes(&["dead-letters", "replay", &edit])).await;
    assert!(replayed.contains("is on its way"), "{replayed}");
    let again = cli.run(&yes(&["dead-letters", "replay", &edit])).await;
    assert_eq!(again.code, 1, "{again:?}");
    assert!(
        again
            .stderr
            .contains("is replaying; it would have to be dead"),
        "{again:?}"
    );

    let done = cli.json(&yes(&["dead-letters", "skip", &skip])).await;
    assert_eq!(
        done,
        [serde_json::json!({"action": "skip", "letters": [skipped.0]})]
    );
    assert_eq!(
        cli.run(&yes(&["dead-letters", "skip", &skip])).await.code,
        1
    );
    cli.done(&yes(&["dead-letters", "discard", &plain, &skip]))
        .await;
    assert_eq!(state(letters[0]).await, LetterState::Discarded);
    let listed = cli
        .json(&["dead-letters", "list", "--state", "discarded"])
        .await;
    assert_eq!(listed.len(), 2);
    cli.done(&yes(&["dead-letters", "restore", "--key", "k1"]))
        .await;
    assert_eq!(state(skipped).await, LetterState::Dead);
    assert_eq!(state(letters[0]).await, LetterState::Discarded);

    let posta = effects_service(&world).await;
    until_quiet::<D>(&store, EFFECTS, 5).await;
    posta.stop().await.unwrap();
    let record = cli.done(&["record"]).await;
    assert!(
        record.contains("ada") && record.contains("ticket 12"),
        "{record}"
    );
    let record = cli.json(&["record", "--letter", &skip]).await;
    let actions: Vec<&str> = record
        .iter()
        .map(|done| done["action"].as_str().unwrap())
        .collect();
    assert_eq!(actions, ["restore", "discard", "skip"]);
}

async fn a_run_is_begun_and_steered<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    bury_numbers::<D>(&store, 4, 5).await;
    let cli = Cli::of(&world);
    let arguments = [
        "dead-letters",
        "replay",
        "--all",
        "--rate",
        "1000",
        "--failures-max",
        "9",
    ];
    let begun = cli.json(&yes(&arguments)).await.remove(0);
    assert_eq!(begun["letters"], 20);
    let run = begun["run"].to_string();
    cli.done(&yes(&["replay-runs", "pause", &run])).await;
    assert_eq!(cli.run(&yes(&["replay-runs", "pause", &run])).await.code, 1);
    let list = cli.done(&["replay-runs", "list"]).await;
    assert!(
        list.contains("paused") && list.contains("all dead letters"),
        "{list}"
    );
    let shown = cli.done(&["replay-runs", "show", &run]).await;
    assert!(
        shown.contains("20 waiting") && shown.contains("1000 letters a second"),
        "{shown}"
    );
    assert!(cli.done(&["status"]).await.contains("paused"));
    cli.done(&yes(&["replay-runs", "resume", &run])).await;
    let posta = effects_service(&world).await;
    let finished = RunState::Finished.as_str();
    until("the run is finished", async || {
        cli.json(&["replay-runs", "show", &run]).await[0]["state"] == finished
    })
    .await;
    posta.stop().await.unwrap();
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(4, 5)), Verdict::default());
    assert_eq!(
        cli.run(&yes(&["replay-runs", "cancel", &run])).await.code,
        1
    );
}

async fn rows_go_out_again<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    posta.declared().await;
    enqueue(&posta, 3, 0..4, |_, _| Fate::Succeed).await;
    until_quiet::<D>(&store, EFFECTS, 12).await;
    let cli = Cli::of(&world);
    let arguments = ["redispatch", "--type", "test.numbered", "--from", "1h"];
    let mut dry = because(&arguments);
    dry.push("--dry-run");
    let shown = cli.done(&dry).await;
    assert!(shown.contains("12 rows of 3 keys"), "{shown}");
    assert_eq!(cli.run(&because(&arguments)).await.code, 3);
    let done = cli.json(&yes(&arguments)).await;
    assert_eq!(
        done,
        [serde_json::json!({"action": "redispatch", "rows": 12})]
    );
    until_quiet::<D>(&store, EFFECTS, 12).await;
    posta.stop().await.unwrap();
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(3, 4)), Verdict::default());
}

/// Times that are so long ago are other times when the command is repeated.
async fn a_redispatch_that_breaks_off_says_how_the_rest_goes<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    posta.declared().await;
    enqueue(&posta, 3, 0..4, |_, _| Fate::Succeed).await;
    until_quiet::<D>(&store, EFFECTS, 12).await;
    posta.stop().await.unwrap();
    let outbox = table::<D>(&store, "outbox");
    let run = async |sql: String| {
        let mut session = store.begin().await.unwrap();
        D::run(&mut session, &sql).await.unwrap();
        session.commit().await.unwrap();
    };
    // A table that takes nothing.
    let (broken, mended) = match D::KIND {
        "sqlite" => (
            format!(
                "CREATE TRIGGER broken BEFORE INSERT ON {outbox} BEGIN SELECT RAISE(ABORT, 'broken'); END"
            ),
            "DROP TRIGGER broken".to_owned(),
        ),
        _ => (
            format!("ALTER TABLE {outbox} ADD CONSTRAINT broken CHECK (position < 0) NOT VALID"),
            format!("ALTER TABLE {outbox} DROP CONSTRAINT broken"),
        ),
    };
    run(broken).await;
    let cli = Cli::of(&world);
    let before = OffsetDateTime::now_utc();
    let broke_off = cli.run(&yes(&["redispatch", "--from", "1h"])).await;
    assert_eq!(broke_off.code, 1, "{broke_off:?}");
    let hint = broke_off.stderr;
    let of = |flag: &str| {
        let rest = hint.split_once(flag).expect("the flag").1;
        let time = rest.split_whitespace().next().expect("a time");
        OffsetDateTime::parse(time, &Rfc3339).expect("an absolute time")
    };
    let (from, until) = (of("--from "), of("--before "));
    let apart = until - from - time::Duration::HOUR;
    assert!(apart.abs() < time::Duration::minutes(5), "{hint}");
    assert!(
        (until - before).abs() < time::Duration::minutes(5),
        "{hint}"
    );
    run(mended).await;
    let (from, until) = (
        from.format(&Rfc3339).unwrap(),
        until.format(&Rfc3339).unwrap(),
    );
    let rest = ["redispatch", "--from", &from, "--before", &until];
    let done = cli.json(&yes(&rest)).await.remove(0);
    assert_eq!(done["rows"], 12, "{hint}");
}

async fn a_letter_is_recalled<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let parked = park::<D>(&world.store(), "k0", 2).await;
    let cli = Cli::of(&world);
    let id = parked.to_string();
    let recall = ["dead-letters", "recall", &id];
    let dead = cli.run(&yes(&recall)).await;
    assert_eq!(dead.code, 1, "{dead:?}");
    assert!(
        dead.stderr.contains("it would have to be replaying"),
        "{dead:?}"
    );
    cli.done(&yes(&["dead-letters", "replay", &id])).await;
    let asked = cli.run(&because(&recall)).await;
    assert_eq!(asked.code, 3, "{asked:?}");
    assert!(
        asked.stdout.contains("would recall 1 letter; 2 wait"),
        "{asked:?}"
    );
    let done = cli.json(&yes(&recall)).await;
    assert_eq!(
        done,
        [serde_json::json!({"action": "recall", "letters": [parked.0]})]
    );
    let shown = cli.done(&["dead-letters", "show", &id]).await;
    assert!(
        shown.contains("dead, its key waits: 2 behind it"),
        "{shown}"
    );
    // By a filter only what is on its way.
    let none = cli
        .run(&yes(&["dead-letters", "recall", "--key", "k0"]))
        .await;
    assert_eq!(none.code, 4, "{none:?}");
    cli.done(&yes(&["dead-letters", "replay", &id])).await;
    let done = cli
        .done(&yes(&["dead-letters", "recall", "--key", "k0"]))
        .await;
    assert_eq!(done.lines().last(), Some("1 letter recalled"), "{done}");
}

async fn a_dry_run_says_how_long_ago_a_handler_was_announced<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    park::<D>(&store, "k0", 1).await;
    let late = bury_numbers::<D>(&store, 1, 1).await[0].to_string();
    let mut session = store.begin().await.unwrap();
    let types = [(MessageType::new("test.numbered").unwrap(), 1)];
    store.announce(&mut session, EFFECTS, &types).await.unwrap();
    let handled = table::<D>(&store, "handled_type");
    let long_ago = match D::KIND {
        "sqlite" => "seen_at - 22 * 86400000000",
        _ => "seen_at - interval '22 days'",
    };
    D::run(
        &mut session,
        &format!("UPDATE {handled} SET seen_at = {long_ago}"),
    )
    .await
    .unwrap();
    session.commit().await.unwrap();
    let cli = Cli::of(&world);
    let mut dry = because(&["dead-letters", "replay", &late]);
    dry.push("--dry-run");
    let shown = cli.done(&dry).await;
    assert!(shown.contains("announced 3 weeks ago"), "{shown}");
    // The key waits for the other letter.
    assert!(shown.contains("beware: 1 wait for a letter"), "{shown}");
    let found = cli.json(&dry).await.remove(0);
    assert_eq!(found["dry_run"]["blocked"], 1);
    let share = &found["dry_run"]["by_type"][0];
    assert_eq!(share["handler"], "announced");
    let at = share["announced_at"].as_str().expect("a time");
    assert!(OffsetDateTime::parse(at, &Rfc3339).is_ok(), "{at}");
    let mut all = because(&["dead-letters", "replay", "--all"]);
    all.push("--dry-run");
    assert_eq!(cli.json(&all).await[0]["dry_run"]["blocked"], 0);
}
