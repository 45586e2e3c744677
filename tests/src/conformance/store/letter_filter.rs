//! Which dead letters an operator sees, one by one and in groups.

use std::time::Duration;

use posta::message::Envelope;
use posta::store::{
    DeadLetterStore, LetterChange, LetterFilter, LetterGroup, LetterId, LetterState, NewDeadLetter,
    Origin, RetryStore,
};

pub(super) use super::given::fresh as start;
use super::given::{Place, failed, keyed, keyless, odd_errors, successor, type_of};
use super::letters::{any, consumer, dead, dead_and_parked, letter, place_of};
use crate::harness::database::TestDatabase;

const NOW: Duration = Duration::ZERO;

fn typed(name: &str) -> Envelope {
    let mut envelope = keyless(b"typed");
    envelope.message_type = type_of(name);
    envelope
}

/// Letters that differ in one part each, and the first that is like none of them.
async fn several<D: TestDatabase>(place: &Place<D>) -> Vec<LetterId> {
    let plain = || dead(&keyless(b"plain"));
    let mut of_dispatch = plain();
    of_dispatch.origin = Origin::Dispatch;
    let mut of_other = plain();
    of_other.origin = consumer("other");
    let mut for_reason = plain();
    for_reason.reason = "panicked";
    let mut with_fingerprint = plain();
    with_fingerprint.fingerprint = "no such # in #".to_owned();
    let mut with_error = plain();
    with_error.error = "cause: 100% of 'a_b' \\ 20".to_owned();
    place
        .bury(&[
            plain(),
            of_dispatch,
            of_other,
            dead(&typed("invoice.sent")),
            dead_and_parked(&keyed("k", b"keyed")),
            for_reason,
            with_fingerprint,
            with_error,
        ])
        .await
}

pub(super) async fn each_field_of_a_filter_chooses<D: TestDatabase>(place: &Place<D>) {
    let ids = several(place).await;
    let first = place.letter(ids[0]).await;
    let all = || LetterFilter::default();
    let text = |text: &str| Some(text.to_owned());
    let cases: Vec<(&str, LetterFilter, Vec<usize>)> = vec![
        ("nothing", all(), (0..8).collect()),
        (
            "ids",
            LetterFilter {
                ids: vec![ids[2], ids[5], LetterId(i64::MAX)],
                ..all()
            },
            vec![2, 5],
        ),
        (
            "dispatch",
            LetterFilter {
                origin: Some(Origin::Dispatch),
                ..all()
            },
            vec![1],
        ),
        (
            "a consumer",
            LetterFilter {
                origin: Some(consumer("other")),
                ..all()
            },
            vec![2],
        ),
        (
            "a type",
            LetterFilter {
                message_type: text("invoice.sent"),
                ..all()
            },
            vec![3],
        ),
        (
            "a key",
            LetterFilter {
                key: text("k"),
                ..all()
            },
            vec![4],
        ),
        (
            "a message id",
            LetterFilter {
                message_id: first.message.id.clone(),
                ..all()
            },
            vec![0],
        ),
        (
            "a reason",
            LetterFilter {
                reason: text("panicked"),
                ..all()
            },
            vec![5],
        ),
        (
            "a fingerprint",
            LetterFilter {
                fingerprint: text("no such # in #"),
                ..all()
            },
            vec![6],
        ),
        (
            "an error's text",
            LetterFilter {
                error_contains: text("100%"),
                ..all()
            },
            vec![7],
        ),
        (
            "parked ones",
            LetterFilter {
                parked: Some(true),
                ..all()
            },
            vec![4],
        ),
        (
            "others than parked ones",
            LetterFilter {
                parked: Some(false),
                ..all()
            },
            vec![0, 1, 2, 3, 5, 6, 7],
        ),
        (
            "from a time",
            LetterFilter {
                dead_from: Some(first.dead_at),
                ..all()
            },
            (0..8).collect(),
        ),
        (
            "from a later time",
            LetterFilter {
                dead_from: Some(first.dead_at + Duration::from_secs(3600)),
                ..all()
            },
            vec![],
        ),
        (
            "before a time",
            LetterFilter {
                dead_before: Some(first.dead_at),
                ..all()
            },
            vec![],
        ),
        (
            "before a later time",
            LetterFilter {
                dead_before: Some(first.dead_at + Duration::from_secs(3600)),
                ..all()
            },
            (0..8).collect(),
        ),
        (
            "fields that no letter has together",
            LetterFilter {
                key: text("k"),
                reason: text("panicked"),
                ..all()
            },
            vec![],
        ),
        (
            "fields that a letter has together",
            LetterFilter {
                ids: ids.clone(),
                origin: Some(consumer("c")),
                message_type: text("order.placed"),
                key: text("k"),
                reason: text("undecodable"),
                fingerprint: text("it broke"),
                error_contains: text("broke"),
                dead_from: Some(first.dead_at),
                parked: Some(true),
                states: vec![LetterState::Replayed, LetterState::Dead],
                ..all()
            },
            vec![4],
        ),
    ];
    for (what, filter, expected) in cases {
        let expected: Vec<LetterId> = expected.into_iter().map(|index| ids[index]).collect();
        assert_eq!(chosen(place, &filter).await, expected, "{what}");
    }
}

pub(super) async fn an_errors_text_is_searched_as_it_is_written<D: TestDatabase>(place: &Place<D>) {
    let letters: Vec<NewDeadLetter> = odd_errors()
        .into_iter()
        .map(|(error, _)| NewDeadLetter {
            error,
            ..dead(&keyless(b""))
        })
        .collect();
    let ids = place.bury(&letters).await;
    let with = |text: &str| LetterFilter {
        error_contains: Some(text.to_owned()),
        ..LetterFilter::default()
    };
    for (id, (error, stored)) in ids.iter().zip(odd_errors()) {
        if !error.is_empty() && stored.len() < 8000 {
            assert_eq!(chosen(place, &with(&error)).await, [*id], "{error:?}");
        }
    }
    // No patterns, and nothing that closes a text.
    for text in ["nul%", "n_ll", "NULL'", "a.b"] {
        assert!(chosen(place, &with(text)).await.is_empty(), "{text}");
    }
    assert_eq!(chosen(place, &with("")).await, ids);
}

pub(super) async fn letters_come_by_id_after_a_given_one_up_to_a_limit<D: TestDatabase>(
    place: &Place<D>,
) {
    let letters: Vec<NewDeadLetter> = (0..10).map(|_| dead(&keyless(b""))).collect();
    let ids = place.bury(&letters).await;
    let all = LetterFilter::default();
    let mut seen = Vec::new();
    loop {
        let after = seen.last().copied();
        let page = place
            .done(async |store, session| store.letters(session, &all, after, 3).await)
            .await;
        if page.is_empty() {
            break;
        }
        assert!(page.len() <= 3);
        seen.extend(page.into_iter().map(|letter| letter.id));
    }
    assert_eq!(seen, ids);
}

pub(super) async fn a_filter_chooses_by_state_and_dead_ones_without<D: TestDatabase>(
    place: &Place<D>,
) {
    let letters: Vec<NewDeadLetter> = (0..3).map(|_| dead(&keyless(b""))).collect();
    let ids = place.bury(&letters).await;
    place.change(&ids[1..2], LetterChange::Replay).await;
    place.change(&ids[2..], LetterChange::Discard).await;
    let in_states = |states: &[LetterState]| LetterFilter {
        states: states.to_vec(),
        ..LetterFilter::default()
    };
    use LetterState::{Dead, Discarded, Replayed, Replaying};
    for (states, expected) in [
        (&[][..], &ids[..1]),
        (&[Dead], &ids[..1]),
        (&[Replaying], &ids[1..2]),
        (&[Replayed], &[]),
        (&[Discarded, Replaying], &ids[1..]),
        (&[Dead, Replaying, Replayed, Discarded], &ids),
    ] {
        assert_eq!(
            chosen(place, &in_states(states)).await,
            expected,
            "{states:?}"
        );
    }
}

pub(super) async fn letters_that_are_alike_are_a_group_and_the_largest_comes_first<
    D: TestDatabase,
>(
    place: &Place<D>,
) {
    assert_eq!(groups(place, &any(), 10).await, []);
    let plain = || dead(&keyless(b""));
    let mut letters = vec![dead(&typed("invoice.sent"))];
    letters.extend((0..3).map(|_| plain()));
    letters.extend((0..2).map(|_| NewDeadLetter {
        origin: Origin::Dispatch,
        ..plain()
    }));
    // Of the same kind, with another fingerprint; and a message that has no type.
    letters.extend((0..4).map(|_| NewDeadLetter {
        fingerprint: "other".to_owned(),
        ..plain()
    }));
    letters.extend((0..5).map(|_| letter(consumer("c"), Default::default())));
    let ids = place.bury(&letters).await;
    let found = groups(place, &any(), 10).await;
    let of: Vec<(Origin, Option<&str>, &str, u64)> = found
        .iter()
        .map(|group| {
            (
                group.origin.clone(),
                group.message_type.as_deref(),
                group.fingerprint.as_str(),
                group.letters,
            )
        })
        .collect();
    assert_eq!(
        of,
        [
            (consumer("c"), None, "it broke", 5),
            (consumer("c"), Some("order.placed"), "other", 4),
            (consumer("c"), Some("order.placed"), "it broke", 3),
            (Origin::Dispatch, Some("order.placed"), "it broke", 2),
            (consumer("c"), Some("invoice.sent"), "it broke", 1),
        ]
    );
    assert!(found.iter().all(|group| group.reason == "undecodable"));
    let (first, last) = (place.letter(ids[0]).await, place.letter(ids[14]).await);
    assert_eq!(found[4].oldest, first.dead_at);
    assert_eq!(found[0].newest, last.dead_at);
    assert!(found.iter().all(|group| group.oldest <= group.newest));
    assert_eq!(groups(place, &any(), 2).await, found[..2]);
    let only = LetterFilter {
        origin: Some(Origin::Dispatch),
        ..any()
    };
    assert_eq!(groups(place, &only, 10).await, found[3..4]);
}

pub(super) async fn a_group_counts_each_parked_key_once_and_what_waits_behind_it<
    D: TestDatabase,
>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    for (key, waiting) in [("a", 3), ("b", 0), ("d", 2)] {
        let head = keyed(key, b"head");
        let mut holds = vec![failed(&head, NOW)];
        holds.extend((0..waiting).map(|_| successor(&keyed(key, b"waits"))));
        place.hold("c", &holds).await;
        place.park(&fence, &head).await;
    }
    // A second letter that the key a waits for, with one message behind it.
    let second = keyed("a", b"second");
    let letter = place.bury(&[dead_and_parked(&second)]).await[0];
    place.hold("c", &[place_of(&second, letter)]).await;
    place.hold("c", &[successor(&keyed("a", b"last"))]).await;
    // Letters that nobody waits for, one of them with a key that waits for others.
    place
        .bury(&[dead(&keyless(b"")), dead(&keyed("a", b""))])
        .await;
    let found = groups(place, &any(), 10).await;
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].letters, found[0].keys_parked), (6, 3));
    assert_eq!(found[0].successors, 4 + 2);
    let table = place
        .done(async |store, session| store.held(session, "c").await)
        .await;
    assert_eq!(table, (6, 3));
}

async fn chosen<D: TestDatabase>(place: &Place<D>, filter: &LetterFilter) -> Vec<LetterId> {
    let letters = place.letters(filter).await;
    letters.into_iter().map(|letter| letter.id).collect()
}

async fn groups<D: TestDatabase>(
    place: &Place<D>,
    filter: &LetterFilter,
    limit: usize,
) -> Vec<LetterGroup> {
    place
        .done(async |store, session| store.letter_groups(session, filter, limit).await)
        .await
}
