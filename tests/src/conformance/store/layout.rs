//! How many partitions a consumer has.

use std::time::Duration;

use posta::layout::{Generation, Layout, LayoutStep, Wish};
use posta::store::{Attendance, Fence, LayoutStore, MemberId, Resource};

pub(super) use super::given::fresh as start;
use super::given::{LONG, Place};
use crate::harness::database::TestDatabase;

/// A time that is over when the next statement looks.
const OVER: Duration = Duration::ZERO;

pub(super) async fn the_first_wish_is_the_layout<D: TestDatabase>(place: &Place<D>) {
    assert_eq!(layout(place, "c").await, None);
    let first = attended(place, "c", wish(4), LONG).await;
    assert!(first.settled);
    assert_eq!(first.layout.generation, Generation::first(4));
    assert_eq!(
        (first.layout.step, first.layout.epoch),
        (LayoutStep::Rest, 1)
    );
    let second = attended(place, "c", wish(8), LONG).await.layout;
    assert_eq!(
        (second.generation, second.wishes.len()),
        (Generation::first(4), 2)
    );
    let other = attended(place, "other", wish(64), LONG).await.layout;
    assert_eq!(
        (other.generation, other.wishes.len()),
        (Generation::first(64), 1),
        "each consumer has its own"
    );
}

pub(super) async fn a_wish_is_its_members_last_one_and_goes_with_its_time<D: TestDatabase>(
    place: &Place<D>,
) {
    let (mut a, b) = (wish(4), wish(8));
    attend(place, "c", a, LONG).await;
    attend(place, "c", b, LONG).await;
    (a.partitions, a.epoch) = (3, 7);
    attend(place, "c", a, LONG).await;
    let mut both = vec![a, b];
    both.sort_by_key(|wish| wish.member);
    assert_eq!(layout(place, "c").await.unwrap().wishes, both);
    // It drains: others do not count it any more.
    attend(place, "c", b, OVER).await;
    assert_eq!(layout(place, "c").await.unwrap().wishes, [a]);
    attend(place, "c", a, LONG).await;
    assert_eq!(place.rows("layout_wish").await, 1);
    let mut session = place.begin().await;
    place
        .store
        .unwish(&mut session, "c", a.member)
        .await
        .unwrap();
    session.commit().await.unwrap();
    assert_eq!(layout(place, "c").await.unwrap().wishes, []);
}

pub(super) async fn every_step_is_written_with_the_next_epoch<D: TestDatabase>(place: &Place<D>) {
    attend(place, "c", wish(4), LONG).await;
    attend(place, "other", wish(4), LONG).await;
    let next = 8;
    let second = Generation {
        number: 2,
        partitions: 8,
    };
    let first = Generation::first(4);
    let steps = [
        (first, LayoutStep::Binding { next }),
        (first, LayoutStep::Draining { next, drained: 0 }),
        (
            first,
            LayoutStep::Draining {
                next,
                drained: u64::MAX,
            },
        ),
        (first, LayoutStep::Releasing { next }),
        (second, LayoutStep::Clearing { former: 4 }),
        (second, LayoutStep::Rest),
    ];
    for (count, (generation, step)) in steps.into_iter().enumerate() {
        let epoch = set(place, "c", generation, step).await;
        assert_eq!(epoch, count as i64 + 2);
        let read = layout(place, "c").await.unwrap();
        assert_eq!(
            (read.generation, read.step, read.epoch),
            (generation, step, epoch)
        );
    }
    assert_eq!(layout(place, "other").await.unwrap().epoch, 1);
}

pub(super) async fn a_layout_that_cannot_be_is_refused<D: TestDatabase>(place: &Place<D>) {
    attend(place, "c", wish(4), LONG).await;
    for (partitions, step) in [
        (0, LayoutStep::Rest),
        (65, LayoutStep::Rest),
        (4, LayoutStep::Binding { next: 4 }),
        (4, LayoutStep::Binding { next: 65 }),
    ] {
        let mut session = place.begin().await;
        let generation = Generation::first(partitions);
        let refused = place
            .store
            .set_layout(&mut session, "c", generation, step)
            .await;
        refused.expect_err("no such layout");
        session.rollback().await;
    }
    let mut session = place.begin().await;
    let refused = place.store.attend(&mut session, "c", wish(65), LONG).await;
    refused.expect_err("no such wish");
    session.rollback().await;
}

pub(super) async fn a_partition_is_drained_by_its_owner_in_its_epoch_only<D: TestDatabase>(
    place: &Place<D>,
) {
    let first = Generation::first(64);
    attend(place, "c", wish(64), LONG).await;
    let fences = place.own(&Resource::partitions("c", first), 64, LONG).await;
    let good = fences[63].clone();
    assert!(!drained(place, &good, 1).await, "nothing drains");
    let next = 8;
    let epoch = set(place, "c", first, LayoutStep::Draining { next, drained: 0 }).await;
    for (what, bad) in place.bad_fences(&good).await {
        assert!(!drained(place, &bad, epoch).await, "{what}");
    }
    let later = Generation {
        number: 2,
        partitions: 64,
    };
    let of_another = Fence {
        resource: Resource::partitions("c", later),
        ..good.clone()
    };
    assert!(!drained(place, &of_another, epoch).await);
    assert!(!drained(place, &good, epoch - 1).await);
    for fence in [&good, &fences[0], &fences[5], &good] {
        assert!(drained(place, fence, epoch).await);
    }
    let read = layout(place, "c").await.unwrap();
    let bits = 1 << 63 | 1 << 5 | 1;
    assert_eq!(
        (read.step, read.epoch),
        (
            LayoutStep::Draining {
                next,
                drained: bits
            },
            epoch
        )
    );
    set(place, "c", first, LayoutStep::Releasing { next }).await;
    assert!(!drained(place, &good, epoch + 1).await);
}

/// On SQLite there is no second transaction meanwhile.
pub(super) async fn nobody_waits_for_a_layout_that_somebody_has<D: TestDatabase>(place: &Place<D>) {
    attend(place, "c", wish(4), LONG).await;
    if D::NAME == "sqlite" {
        return;
    }
    let store = &place.store;
    let mut holder = place.begin().await;
    let seen = store.attend(&mut holder, "c", wish(8), LONG).await;
    assert!(seen.unwrap().settled);
    // Others read it and keep their leases; nobody changes it.
    assert!(attended(place, "c", wish(8), LONG).await.settled);
    let mut session = place.begin().await;
    assert_eq!(store.lock_layout(&mut session, "c").await.unwrap(), None);
    session.rollback().await;
    holder.rollback().await;

    let mut holder = place.begin().await;
    assert!(store.lock_layout(&mut holder, "c").await.unwrap().is_some());
    assert_eq!(store.lock_layout(&mut holder, "none").await.unwrap(), None);
    let mut session = place.begin().await;
    assert_eq!(store.lock_layout(&mut session, "c").await.unwrap(), None);
    let seen = store
        .attend(&mut session, "c", wish(8), LONG)
        .await
        .unwrap();
    assert!(!seen.settled);
    assert_eq!(seen.layout.generation, Generation::first(4));
    session.commit().await.unwrap();
    holder.rollback().await;
    assert!(attended(place, "c", wish(8), LONG).await.settled);
}

fn wish(partitions: u8) -> Wish {
    Wish {
        member: MemberId::random(),
        partitions,
        epoch: 0,
    }
}

async fn attended<D: TestDatabase>(
    place: &Place<D>,
    consumer: &str,
    wish: Wish,
    ttl: Duration,
) -> Attendance {
    let mut session = place.begin().await;
    let attendance = place.store.attend(&mut session, consumer, wish, ttl).await;
    session.commit().await.unwrap();
    attendance.unwrap()
}

async fn attend<D: TestDatabase>(place: &Place<D>, consumer: &str, wish: Wish, ttl: Duration) {
    let _ = attended(place, consumer, wish, ttl).await;
}

async fn layout<D: TestDatabase>(place: &Place<D>, consumer: &str) -> Option<Layout> {
    let mut session = place.begin().await;
    let layout = place.store.layout(&mut session, consumer).await;
    session.commit().await.unwrap();
    layout.unwrap()
}

async fn set<D: TestDatabase>(
    place: &Place<D>,
    consumer: &str,
    generation: Generation,
    step: LayoutStep,
) -> i64 {
    let mut session = place.begin().await;
    let locked = place.store.lock_layout(&mut session, consumer).await;
    assert!(locked.unwrap().is_some());
    let epoch = place
        .store
        .set_layout(&mut session, consumer, generation, step)
        .await;
    session.commit().await.unwrap();
    epoch.unwrap()
}

async fn drained<D: TestDatabase>(place: &Place<D>, fence: &Fence, epoch: i64) -> bool {
    let mut session = place.begin().await;
    let locked = place.store.lock_layout(&mut session, "c").await;
    assert!(locked.unwrap().is_some());
    let drained = place.store.drained(&mut session, "c", fence, epoch).await;
    session.commit().await.unwrap();
    drained.unwrap()
}
