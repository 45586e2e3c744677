//! The record: what operators did, and which consumers handle what.

use posta::store::{Action, HandledType, LetterId, NewAction, RecordStore, RunId};

pub(super) use super::given::fresh as start;
use super::given::{Place, odd_errors, type_of};
use crate::harness::database::TestDatabase;

pub(super) async fn the_newest_actions_come_first<D: TestDatabase>(place: &Place<D>) {
    assert!(actions(place, None, 10).await.is_empty());
    for n in 0..5 {
        record(place, &action(&n.to_string(), Some(LetterId(n % 2)))).await;
    }
    record(place, &action("5", None)).await;
    let reasons = async |letter, limit| {
        let actions = actions(place, letter, limit).await;
        actions
            .into_iter()
            .map(|action| action.what.reason)
            .collect::<Vec<_>>()
    };
    assert_eq!(reasons(None, 10).await, ["5", "4", "3", "2", "1", "0"]);
    assert_eq!(reasons(None, 2).await, ["5", "4"]);
    assert_eq!(reasons(Some(LetterId(0)), 10).await, ["4", "2", "0"]);
    assert_eq!(reasons(Some(LetterId(1)), 1).await, ["3"]);
    assert_eq!(reasons(Some(LetterId(2)), 10).await, [""; 0]);
    let all = actions(place, None, 10).await;
    assert!(all.is_sorted_by_key(|action| std::cmp::Reverse(action.position)));
    assert!(all.is_sorted_by_key(|action| std::cmp::Reverse(action.done_at)));
}

pub(super) async fn an_action_reads_as_it_was_recorded<D: TestDatabase>(place: &Place<D>) {
    for (text, stored) in odd_errors() {
        let new = NewAction {
            who: text.clone(),
            action: text.clone(),
            reason: text.clone(),
            letter: Some(LetterId(i64::MAX)),
            run: Some(RunId(7)),
            details: text,
        };
        record(place, &new).await;
        let what = actions(place, None, 1).await.remove(0).what;
        assert_eq!((&what.who, &what.action), (&stored, &stored));
        assert_eq!((&what.reason, &what.details), (&stored, &stored));
        assert_eq!((what.letter, what.run), (new.letter, new.run));
    }
    record(place, &action("none", None)).await;
    let what = actions(place, None, 1).await.remove(0).what;
    assert_eq!((what.letter, what.run), (None, None));
}

pub(super) async fn an_action_that_is_rolled_back_is_not_on_record<D: TestDatabase>(
    place: &Place<D>,
) {
    let mut session = place.begin().await;
    place
        .store
        .record(&mut session, &action("undone", None))
        .await
        .unwrap();
    session.rollback().await;
    assert!(actions(place, None, 10).await.is_empty());
}

pub(super) async fn what_consumers_handle_is_told_with_the_newest_version<D: TestDatabase>(
    place: &Place<D>,
) {
    assert!(handled(place).await.is_empty());
    announce(place, "shipping", &[("order.placed", 1)]).await;
    announce(
        place,
        "billing",
        &[("order.placed", 2), ("invoice.sent", 1)],
    )
    .await;
    announce(place, "nobody", &[]).await;
    let first = handled(place).await;
    // A process of an older version starts, and a newer one.
    announce(place, "billing", &[("order.placed", 1)]).await;
    announce(
        place,
        "shipping",
        &[("order.placed", 3), ("order.placed", 3)],
    )
    .await;
    let found = handled(place).await;
    let told: Vec<(&str, &str, u32)> = found
        .iter()
        .map(|one| {
            (
                one.consumer.as_str(),
                one.message_type.as_str(),
                one.version,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("billing", "invoice.sent", 1),
            ("billing", "order.placed", 2),
            ("shipping", "order.placed", 3)
        ]
    );
    assert_eq!(found[0].seen_at, first[0].seen_at);
    assert!(found[1].seen_at >= first[1].seen_at && found[2].seen_at >= first[2].seen_at);
}

fn action(reason: &str, letter: Option<LetterId>) -> NewAction {
    NewAction {
        who: "ada".to_owned(),
        action: "replay".to_owned(),
        reason: reason.to_owned(),
        letter,
        run: None,
        details: String::new(),
    }
}

async fn record<D: TestDatabase>(place: &Place<D>, action: &NewAction) {
    place
        .done(async |store, session| store.record(session, action).await)
        .await;
}

async fn actions<D: TestDatabase>(
    place: &Place<D>,
    letter: Option<LetterId>,
    limit: usize,
) -> Vec<Action> {
    place
        .done(async |store, session| store.actions(session, letter, limit).await)
        .await
}

async fn announce<D: TestDatabase>(place: &Place<D>, consumer: &str, types: &[(&str, u32)]) {
    let types: Vec<_> = types
        .iter()
        .map(|(name, version)| (type_of(name), *version))
        .collect();
    place
        .done(async |store, session| store.announce(session, consumer, &types).await)
        .await;
}

async fn handled<D: TestDatabase>(place: &Place<D>) -> Vec<HandledType> {
    place
        .done(async |store, session| store.handled_types(session).await)
        .await
}
