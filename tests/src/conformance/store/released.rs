//! The retry table: what leaves it.

use std::ops::RangeInclusive;
use std::time::Duration;

use posta::store::{Fence, RetryStore};

pub(super) use super::given::fresh as start;
use super::given::{LONG, Place, failed, keyed, keyless, successor};
use super::letters::texts;
use super::postponed::postpone;
use super::retry::{due, held, of_key};
use crate::harness::database::TestDatabase;

const ALL: RangeInclusive<u8> = 0..=63;
const NOW: Duration = Duration::ZERO;

pub(super) async fn a_release_makes_the_next_of_the_key_due<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    place
        .hold(
            "c",
            &[
                failed(&keyed("a", b"a1"), NOW),
                failed(&keyed("b", b"b1"), LONG),
                successor(&keyed("b", b"b2")),
                successor(&keyed("a", b"a2")),
                failed(&keyed("a", b"a3"), LONG),
            ],
        )
        .await;
    place
        .hold("other", &[failed(&keyed("a", b"other"), LONG)])
        .await;
    for (expected, held_then) in [("a1", (4, 2)), ("a2", (3, 2)), ("a3", (2, 1))] {
        let due = due(place, "c", ALL, 100).await;
        assert_eq!(texts(&due), [expected]);
        assert!(release(place, &fence, due[0].position).await);
        assert_eq!(held(place, "c").await, held_then);
    }
    assert!(due(place, "c", ALL, 100).await.is_empty());
    assert!(due(place, "other", ALL, 100).await.is_empty());
}

pub(super) async fn several_messages_are_released_together<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    place
        .hold(
            "c",
            &[
                failed(&keyed("a", b"a1"), NOW),
                failed(&keyed("b", b"b1"), NOW),
                successor(&keyed("a", b"a2")),
                successor(&keyed("a", b"a3")),
                failed(&keyless(b"x"), NOW),
                successor(&keyed("b", b"b2")),
                failed(&keyless(b"y"), NOW),
            ],
        )
        .await;
    place
        .hold("other", &[failed(&keyless(b"other"), NOW)])
        .await;
    let others = due(place, "other", ALL, 1).await[0].position;
    let mut chosen: Vec<i64> = of_key(place, "a", 2)
        .await
        .iter()
        .map(|row| row.position)
        .collect();
    let free = due(place, "c", ALL, 100).await;
    assert_eq!(texts(&free), ["a1", "b1", "x", "y"]);
    chosen.extend([free[1].position, free[2].position]);
    let mut asked = chosen.clone();
    // One twice, one that is gone, one of another consumer.
    asked.extend([chosen[0], i64::MAX, others]);
    chosen.sort_unstable();
    assert_eq!(place.release(&fence, &asked).await, chosen);
    assert_eq!(texts(&due(place, "c", ALL, 100).await), ["a3", "b2", "y"]);
    assert_eq!(held(place, "c").await, (3, 2));
    assert_eq!(held(place, "other").await, (1, 0));
    assert!(place.release(&fence, &asked).await.is_empty());
    assert!(place.release(&fence, &[]).await.is_empty());
}

pub(super) async fn a_release_behind_a_head_leaves_it_its_time<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    place
        .hold(
            "c",
            &[
                failed(&keyed("a", b"a1"), LONG),
                successor(&keyed("a", b"a2")),
                successor(&keyed("a", b"a3")),
            ],
        )
        .await;
    let rows = of_key(place, "a", 10).await;
    assert!(release(place, &fence, rows[1].position).await);
    assert!(due(place, "c", ALL, 100).await.is_empty());
    assert_eq!(texts(&of_key(place, "a", 10).await), ["a1", "a3"]);
}

pub(super) async fn a_release_without_a_valid_fence_changes_nothing<D: TestDatabase>(
    place: &Place<D>,
) {
    let good = place.own_partition("c").await;
    place
        .hold(
            "c",
            &[failed(&keyed("k", b"1"), NOW), successor(&keyed("k", b"2"))],
        )
        .await;
    let position = due(place, "c", ALL, 1).await[0].position;
    for (what, fence) in place.bad_fences(&good).await {
        assert!(!release(place, &fence, position).await, "a fence {what}");
    }
    place.expire(&good).await;
    assert!(
        !release(place, &good, position).await,
        "a fence whose time is over"
    );
    let successor = place.own_expired(&good.resource, 0).await;
    assert!(
        !release(place, &good, position).await,
        "a fence that another member's replaced"
    );
    assert_eq!(held(place, "c").await, (2, 1));
    assert_eq!(texts(&due(place, "c", ALL, 100).await), ["1"]);
    assert!(release(place, &successor, position).await);
}

pub(super) async fn a_release_of_what_is_gone_says_so<D: TestDatabase>(place: &Place<D>) {
    let fence = place.own_partition("c").await;
    let others = place.own_partition("other").await;
    place.hold("c", &[failed(&keyless(b"1"), NOW)]).await;
    let position = due(place, "c", ALL, 1).await[0].position;
    let mut session = place.begin().await;
    let foreign = place
        .store
        .release(&mut session, "other", &others, &[position])
        .await
        .unwrap();
    session.commit().await.unwrap();
    assert!(foreign.is_empty(), "of another consumer");
    assert!(release(place, &fence, position).await);
    assert!(!release(place, &fence, position).await);
    assert!(!postpone(place, &fence, position, "gone", NOW).await);
}

pub(super) async fn release<D: TestDatabase>(
    place: &Place<D>,
    fence: &Fence,
    position: i64,
) -> bool {
    let mut session = place.begin().await;
    let released = place
        .store
        .release(&mut session, "c", fence, &[position])
        .await
        .unwrap();
    session.commit().await.unwrap();
    !released.is_empty()
}
