//! The checker sees what it is there for: services that make a mistake, by the same driver, are found
//! guilty of it. `POSTA_BROKEN` has them make it (`runtime/src/supervision/broken.rs`); they are killed
//! where it matters.

use std::time::Duration;

use super::checker::Verdict;
use super::driver;
use super::ground::DatabaseKind;
use super::plan::Plan;
use super::points::Tally;
use crate::world::BrokerKind;

/// Runs services with a mistake that are killed at these points, and returns what is found.
fn found(mistake: &'static str, broker: BrokerKind, points: &'static [&'static str]) -> Verdict {
    let name = format!("posta-faults-{mistake}-{}", std::process::id());
    let evidence = std::env::temp_dir().join(name);
    let everything = Plan::of_everything(
        DatabaseKind::Sqlite,
        broker,
        1,
        Duration::from_secs(30),
        &evidence,
    );
    let plan = Plan {
        pause: None,
        servers: false,
        loses_queues: false,
        redivides: false,
        points,
        aims_max: if points.is_empty() { 0 } else { 3 },
        mistake: Some(mistake),
        look_interval: Duration::from_secs(1),
        patience: Duration::from_secs(15),
        ..everything
    };
    let outcome = driver::run(&plan, &mut Tally::default());
    let Verdict {
        lost,
        doubled,
        out_of_order,
        broken,
    } = &outcome.verdict;
    println!(
        "{mistake}: lost {lost}, doubled {doubled}, out of order {out_of_order}, after {:?}",
        outcome.tally
    );
    // What is wrong is to be something that is promised, not that a process fell over.
    let promised = |what: &&String| what.starts_with('G') && !what.starts_with("G6");
    let broken: Vec<&String> = broken.iter().filter(promised).collect();
    assert!(!broken.is_empty(), "nothing is seen: {:?}", outcome.verdict);
    let _ = std::fs::remove_dir_all(evidence);
    outcome.verdict
}

/// What was acknowledged and not committed is gone with its process.
#[test]
fn a_service_that_acknowledges_before_it_commits_is_found_to_lose_messages() {
    let found = found("acknowledge", BrokerKind::RabbitMq, &["consume.handled"]);
    assert!(found.lost > 0, "{found:?}");
}

/// What was settled and not published is gone with its process.
#[test]
fn a_service_that_settles_before_the_confirm_is_found_to_lose_messages() {
    let found = found("confirm", BrokerKind::RabbitMq, &["dispatch.settled"]);
    assert!(found.lost > 0, "{found:?}");
}

/// What was committed and not acknowledged is delivered again.
#[test]
fn a_service_without_an_inbox_is_found_to_double_effects() {
    let found = found("inbox", BrokerKind::RabbitMq, &["consume.committed"]);
    assert!(found.doubled > 0, "{found:?}");
}

/// Nobody has to die for it.
#[test]
fn a_service_that_holds_nothing_is_found_to_break_the_order() {
    let found = found("hold", BrokerKind::Database, &[]);
    assert!(found.out_of_order > 0, "{found:?}");
}
