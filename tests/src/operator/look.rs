use std::time::Duration;

use posta::message::RawMessage;
use posta::operations::operator::OperatorErrorKind;
use posta::store::{
    LetterFilter, LetterId, LetterState, NewDeadLetter, Origin, RedispatchStore, Store,
};

use super::given::{bury, letter, numbered, operator, park};
use super::on_both_databases;
use crate::world::service::EFFECTS;
use crate::world::{BrokerKind, TestDatabase, World};

on_both_databases!(
    letters_are_found_by_every_part_of_a_filter,
    letters_are_grouped_by_what_they_have_in_common,
    a_letter_is_shown_with_what_waits_behind_it,
    what_is_not_there_is_said_in_words,
);

async fn letters_are_found_by_every_part_of_a_filter<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let operator = operator(&world, "ada");
    let parked = park::<D>(&store, "a", 2).await;
    let plain = RawMessage::from(numbered("b", 0));
    let id = plain.id.clone();
    let others = [
        letter(plain, "connection to db-7 refused"),
        NewDeadLetter {
            origin: Origin::Dispatch,
            reason: "unroutable",
            ..letter(numbered("c", 0), "no queue took it")
        },
        NewDeadLetter {
            reason: "malformed",
            ..letter(RawMessage::default(), "100% of message id is missing")
        },
    ];
    let others = bury::<D>(&store, &others).await;
    let (plain, dispatch, malformed) = (others[0], others[1], others[2]);
    let mut session = store.begin().await.unwrap();
    let now = store.now(&mut session).await.unwrap();
    session.commit().await.unwrap();
    let all = LetterFilter::default;
    let cases: Vec<(LetterFilter, Vec<LetterId>)> = vec![
        (all(), vec![parked, plain, dispatch, malformed]),
        (
            LetterFilter {
                ids: vec![plain, malformed],
                ..all()
            },
            vec![plain, malformed],
        ),
        (
            LetterFilter {
                origin: Some(Origin::Dispatch),
                ..all()
            },
            vec![dispatch],
        ),
        (
            LetterFilter {
                origin: Some(Origin::Consumer(EFFECTS.to_owned())),
                ..all()
            },
            vec![parked, plain, malformed],
        ),
        (
            LetterFilter {
                origin: Some(Origin::Consumer("x".to_owned())),
                ..all()
            },
            vec![],
        ),
        (
            LetterFilter {
                message_type: Some("test.numbered".to_owned()),
                ..all()
            },
            vec![parked, plain, dispatch],
        ),
        (
            LetterFilter {
                key: Some("b".to_owned()),
                ..all()
            },
            vec![plain],
        ),
        (
            LetterFilter {
                message_id: id,
                ..all()
            },
            vec![plain],
        ),
        (
            LetterFilter {
                reason: Some("malformed".to_owned()),
                ..all()
            },
            vec![malformed],
        ),
        (
            LetterFilter {
                error_contains: Some("db-7".to_owned()),
                ..all()
            },
            vec![plain],
        ),
        // Taken as it is written: no pattern.
        (
            LetterFilter {
                error_contains: Some("100%".to_owned()),
                ..all()
            },
            vec![malformed],
        ),
        (
            LetterFilter {
                error_contains: Some("d%7".to_owned()),
                ..all()
            },
            vec![],
        ),
        (
            LetterFilter {
                parked: Some(true),
                ..all()
            },
            vec![parked],
        ),
        (
            LetterFilter {
                parked: Some(false),
                ..all()
            },
            vec![plain, dispatch, malformed],
        ),
        (
            LetterFilter {
                dead_before: Some(now - Duration::from_secs(60)),
                ..all()
            },
            vec![],
        ),
        (
            LetterFilter {
                dead_from: Some(now - Duration::from_secs(60)),
                ..all()
            },
            vec![parked, plain, dispatch, malformed],
        ),
        (
            LetterFilter {
                states: vec![LetterState::Replayed],
                ..all()
            },
            vec![],
        ),
    ];
    for (filter, expected) in cases {
        let found = operator.letters(&filter, None, 10).await.unwrap();
        let found: Vec<LetterId> = found.iter().map(|letter| letter.id).collect();
        assert_eq!(found, expected, "{}", filter.in_words());
    }
    let page = operator.letters(&all(), Some(parked), 2).await.unwrap();
    assert_eq!(
        page.iter().map(|letter| letter.id).collect::<Vec<_>>(),
        [plain, dispatch]
    );
}

async fn letters_are_grouped_by_what_they_have_in_common<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let letters: Vec<NewDeadLetter> = (0..5)
        .map(|number| {
            letter(
                numbered(&format!("k{number}"), 0),
                &format!("order {number}00 timed out"),
            )
        })
        .collect();
    bury::<D>(&store, &letters).await;
    park::<D>(&store, "p", 3).await;
    let groups = operator(&world, "ada")
        .groups(&LetterFilter::default(), 10)
        .await
        .unwrap();
    assert_eq!(groups.len(), 2, "{groups:?}");
    let (timeouts, parked) = (&groups[0], &groups[1]);
    assert_eq!(
        (timeouts.letters, timeouts.keys_parked, timeouts.successors),
        (5, 0, 0)
    );
    assert_eq!(
        (parked.letters, parked.keys_parked, parked.successors),
        (1, 1, 3)
    );
    assert!(timeouts.oldest <= timeouts.newest);
    let filter = LetterFilter {
        fingerprint: Some(timeouts.fingerprint.clone()),
        ..LetterFilter::default()
    };
    let found = operator(&world, "ada").letters(&filter, None, 10).await;
    assert_eq!(found.unwrap().len(), 5);
}

async fn a_letter_is_shown_with_what_waits_behind_it<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let parked = park::<D>(&store, "p", 5).await;
    let shown = operator(&world, "ada").show(parked, 3).await.unwrap();
    assert!(shown.letter.parked);
    assert_eq!(shown.letter.successors, 5);
    assert_eq!(shown.successors.len(), 3);
    assert!(
        shown
            .successors
            .iter()
            .all(|successor| successor.message_type == "test.numbered")
    );
    assert!(shown.actions.is_empty());
    assert_eq!(
        shown
            .revisions
            .iter()
            .map(|revision| revision.number)
            .collect::<Vec<_>>(),
        [0]
    );
}

async fn what_is_not_there_is_said_in_words<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let operator = operator(&world, "ada");
    let missing = operator.show(LetterId(7), 0).await.unwrap_err();
    assert_eq!(missing.kind(), OperatorErrorKind::NotFound);
    assert_eq!(missing.to_string(), "there is no dead letter 7");
    let missing = operator.replay(LetterId(7), "why not").await.unwrap_err();
    assert_eq!(missing.kind(), OperatorErrorKind::NotFound);
    let order = posta::operations::operator::RunOrder::default();
    let nothing = operator
        .begin_run(&LetterFilter::default(), order, "all")
        .await;
    assert_eq!(nothing.unwrap_err().kind(), OperatorErrorKind::NotFound);
    assert!(
        operator.runs(10).await.unwrap().is_empty(),
        "nothing was begun"
    );
    assert!(
        operator.record(None, 10).await.unwrap().is_empty(),
        "nothing was done"
    );
    let too_long = operator.replay(LetterId(7), &"x".repeat(2_001)).await;
    assert_eq!(too_long.unwrap_err().kind(), OperatorErrorKind::Argument);
    let nobody = posta::Operator::<D>::new(world.store(), " ");
    assert_eq!(nobody.unwrap_err().kind(), OperatorErrorKind::Argument);
}
