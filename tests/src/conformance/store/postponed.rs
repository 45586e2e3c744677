//! The retry table: what waits again.

use std::ops::RangeInclusive;
use std::time::Duration;

use posta::store::{Fence, NewHold, Postponement, RetryStore};

pub(super) use super::given::fresh as start;
use super::given::{LONG, Place, failed, keyed, keyless, odd_errors, successor};
use super::released::release;
use super::retry::{due, of_key};
use crate::harness::database::TestDatabase;

const ALL: RangeInclusive<u8> = 0..=63;
const NOW: Duration = Duration::ZERO;

pub(super) async fn a_postponed_message_is_due_later_with_one_more_attempt<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    place
        .hold(
            "c",
            &[failed(&keyed("k", b"1"), NOW), successor(&keyed("k", b"2"))],
        )
        .await;
    let position = due(place, "c", ALL, 1).await[0].position;
    assert!(postpone(place, &fence, position, "again", NOW).await);
    let rows = due(place, "c", ALL, 100).await;
    assert_eq!(
        (rows.len(), rows[0].position, rows[0].attempts),
        (1, position, 2)
    );
    assert!(postpone(place, &fence, position, "once more", LONG).await);
    assert!(due(place, "c", ALL, 100).await.is_empty());
    assert_eq!(of_key(place, "k", 1).await[0].attempts, 3);
}

/// Nobody here has a handler for it: it waits on, and has not failed once more, whether it was
/// tried before or not; how long that goes on already is known until it is tried.
pub(super) async fn a_message_that_is_postponed_untried_has_no_more_attempts<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let untried = NewHold {
        delay: Some(NOW),
        ..successor(&keyed("k", b"2"))
    };
    let holds = [failed(&keyless(b"1"), NOW), untried];
    place.hold("c", &holds).await;
    for (index, attempts) in [(0, 1), (1, 0)] {
        let row = place.due_rows().await.remove(index);
        assert_eq!((row.attempts, row.unhandled_for), (attempts, None));
        for _ in 0..3 {
            let postponement = Postponement {
                error: None,
                delay: NOW,
            };
            let postponed = place
                .done(async |store, session| {
                    store
                        .postpone(session, "c", &fence, row.position, postponement)
                        .await
                })
                .await;
            assert!(postponed);
        }
        let waits = place.due_rows().await.remove(index);
        assert_eq!((waits.attempts, waits.failed_at), (attempts, row.failed_at));
        assert!(waits.unhandled_for.is_some());
        assert!(postpone(place, &fence, row.position, "it broke", NOW).await);
        let tried = place.due_rows().await.remove(index);
        assert_eq!((tried.attempts, tried.unhandled_for), (attempts + 1, None));
    }
}

pub(super) async fn a_message_knows_when_it_failed_first<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    place
        .hold(
            "c",
            &[failed(&keyed("k", b"1"), NOW), successor(&keyed("k", b"2"))],
        )
        .await;
    let rows = of_key(place, "k", 2).await;
    let first = rows[0].failed_at;
    assert!(first.is_some());
    assert_eq!(rows[1].failed_at, None);
    for _ in 0..3 {
        assert!(postpone(place, &fence, rows[0].position, "again", NOW).await);
    }
    assert_eq!(due(place, "c", ALL, 1).await[0].failed_at, first);
    assert!(release(place, &fence, rows[0].position).await);
    assert!(postpone(place, &fence, rows[1].position, "its first", NOW).await);
    assert!(due(place, "c", ALL, 1).await[0].failed_at >= first);
}

pub(super) async fn a_postponement_without_a_valid_fence_changes_nothing<D: TestDatabase>(
    place: &Place<D>,
) {
    let good = place.own_partition("c").await;
    place.hold("c", &[failed(&keyless(b"1"), NOW)]).await;
    let position = due(place, "c", ALL, 1).await[0].position;
    for (what, fence) in place.bad_fences(&good).await {
        assert!(
            !postpone(place, &fence, position, "no", LONG).await,
            "a fence {what}"
        );
    }
    place.expire(&good).await;
    assert!(
        !postpone(place, &good, position, "no", LONG).await,
        "a fence whose time is over"
    );
    place.own_expired(&good.resource, 0).await;
    assert!(
        !postpone(place, &good, position, "no", LONG).await,
        "a fence that another member's replaced"
    );
    let rows = due(place, "c", ALL, 100).await;
    assert_eq!((rows.len(), rows[0].attempts), (1, 1));
}

pub(super) async fn error_texts_of_tries_are_stored_without_nul_and_cut<D: TestDatabase>(
    place: &Place<D>,
) {
    let fence = place.own_partition("c").await;
    let table = place.table("retry");
    for (error, stored) in odd_errors() {
        let mut hold = failed(&keyless(b"1"), NOW);
        hold.error = Some(error.clone());
        place.hold("c", &[hold]).await;
        let read = async || {
            place
                .texts(&format!("SELECT last_error AS value FROM {table}"))
                .await
        };
        assert_eq!(read().await, [Some(stored.clone())]);
        let position = due(place, "c", ALL, 1).await[0].position;
        assert!(postpone(place, &fence, position, "another", NOW).await);
        assert!(postpone(place, &fence, position, &error, NOW).await);
        assert_eq!(read().await, [Some(stored)]);
        assert!(release(place, &fence, position).await);
    }
}

pub(super) async fn postpone<D: TestDatabase>(
    place: &Place<D>,
    fence: &Fence,
    position: i64,
    error: &str,
    delay: Duration,
) -> bool {
    let mut session = place.begin().await;
    let postponed = place
        .store
        .postpone(
            &mut session,
            "c",
            fence,
            position,
            Postponement {
                error: Some(error),
                delay,
            },
        )
        .await
        .unwrap();
    session.commit().await.unwrap();
    postponed
}
