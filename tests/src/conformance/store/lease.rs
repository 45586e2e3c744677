//! Leases, and who contends for them.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::future::join_all;
use posta::layout::Generation;
use posta::store::{Grant, LeaseStore, MemberId, Resource};

pub(super) use super::given::fresh as start;
use super::given::{LONG, Place};
use crate::harness::database::TestDatabase;

/// A time that is over when the next statement looks.
const OVER: Duration = Duration::ZERO;

pub(super) async fn members_are_all_that_joined_sorted<D: TestDatabase>(place: &Place<D>) {
    let mut members = Vec::new();
    for _ in 0..5 {
        let member = MemberId::random();
        members.push(member);
        members.sort();
        assert_eq!(
            join(place, &Resource::Lanes, 1, member, LONG).await,
            members
        );
        assert_eq!(
            join(place, &Resource::Lanes, 1, member, LONG).await,
            members,
            "once each"
        );
    }
}

pub(super) async fn a_member_whose_time_is_over_is_forgotten<D: TestDatabase>(place: &Place<D>) {
    let (gone, here) = (MemberId::random(), MemberId::random());
    join(place, &Resource::Lanes, 1, gone, OVER).await;
    assert_eq!(join(place, &Resource::Lanes, 1, here, LONG).await, [here]);
    assert_eq!(place.rows("member").await, 1);
    let mut both = [gone, here];
    both.sort();
    assert_eq!(join(place, &Resource::Lanes, 1, gone, LONG).await, both);
}

pub(super) async fn joining_makes_the_leases_and_more_when_more_are_wanted<D: TestDatabase>(
    place: &Place<D>,
) {
    let member = MemberId::random();
    let resource = partitions("c");
    for (count, there) in [(3, 3), (3, 3), (5, 5), (2, 5)] {
        join(place, &resource, count, member, LONG).await;
        let numbers: Vec<u8> = owners(place, &resource)
            .await
            .iter()
            .map(|(grant, _)| grant.number)
            .collect();
        assert_eq!(numbers, (0..there).collect::<Vec<u8>>());
    }
    assert!(
        owners(place, &resource)
            .await
            .iter()
            .all(|(_, owner)| owner.is_none())
    );
}

pub(super) async fn free_leases_are_granted_once_and_up_to_the_limit<D: TestDatabase>(
    place: &Place<D>,
) {
    let [a, b] = joined(place, &Resource::Lanes, 10).await;
    assert_eq!(acquire(place, &Resource::Lanes, 10, a, LONG, 0).await, []);
    let of_a = acquire(place, &Resource::Lanes, 10, a, LONG, 4).await;
    let of_b = acquire(place, &Resource::Lanes, 10, b, LONG, 100).await;
    assert_eq!((of_a.len(), of_b.len()), (4, 6));
    let numbers: HashSet<u8> = of_a.iter().chain(&of_b).map(|grant| grant.number).collect();
    assert_eq!(numbers.len(), 10, "none twice");
    assert_eq!(acquire(place, &Resource::Lanes, 10, a, LONG, 100).await, []);
    for (grant, owner) in owners(place, &Resource::Lanes).await {
        let expected = if of_a.contains(&grant) { a } else { b };
        assert_eq!(owner, Some(expected));
    }
}

pub(super) async fn only_numbers_below_the_count_are_granted<D: TestDatabase>(place: &Place<D>) {
    let resource = partitions("c");
    let [a, _] = joined(place, &resource, 8).await;
    let granted = acquire(place, &resource, 3, a, LONG, 100).await;
    let mut numbers: Vec<u8> = granted.iter().map(|grant| grant.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 1, 2]);
}

pub(super) async fn a_renewal_keeps_the_epoch_and_returns_what_is_owned<D: TestDatabase>(
    place: &Place<D>,
) {
    let [a, b] = joined(place, &Resource::Lanes, 6).await;
    assert_eq!(renew(place, &Resource::Lanes, a, LONG).await, []);
    let mut of_a = acquire(place, &Resource::Lanes, 6, a, LONG, 3).await;
    acquire(place, &Resource::Lanes, 6, b, LONG, 3).await;
    of_a.sort_by_key(|grant| grant.number);
    for _ in 0..3 {
        assert_eq!(renew(place, &Resource::Lanes, a, LONG).await, of_a);
    }
}

pub(super) async fn an_expired_lease_is_not_renewed_and_can_be_taken_with_a_new_epoch<
    D: TestDatabase,
>(
    place: &Place<D>,
) {
    let [a, b] = joined(place, &Resource::Lanes, 1).await;
    let first = acquire(place, &Resource::Lanes, 1, a, LONG, 1).await[0];
    renew(place, &Resource::Lanes, a, OVER).await;
    assert_eq!(owners(place, &Resource::Lanes).await, [(first, None)]);
    assert_eq!(renew(place, &Resource::Lanes, a, LONG).await, []);
    let second = acquire(place, &Resource::Lanes, 1, b, LONG, 1).await[0];
    assert_eq!(
        second,
        Grant {
            epoch: first.epoch + 1,
            ..first
        }
    );
    assert_eq!(owners(place, &Resource::Lanes).await, [(second, Some(b))]);
    assert_eq!(renew(place, &Resource::Lanes, a, LONG).await, []);
    assert_eq!(acquire(place, &Resource::Lanes, 1, a, LONG, 1).await, []);
}

pub(super) async fn a_lease_is_given_back_by_its_grant_only<D: TestDatabase>(place: &Place<D>) {
    let [a, b] = joined(place, &Resource::Lanes, 2).await;
    let grants = acquire(place, &Resource::Lanes, 2, a, LONG, 2).await;
    let stale = Grant {
        epoch: grants[0].epoch - 1,
        ..grants[0]
    };
    assert_eq!(give_back(place, &Resource::Lanes, a, &[stale]).await, 0);
    assert_eq!(give_back(place, &Resource::Lanes, b, &grants).await, 0);
    assert_eq!(give_back(place, &partitions("c"), a, &grants).await, 0);
    assert_eq!(give_back(place, &Resource::Lanes, a, &[]).await, 0);
    assert!(
        owners(place, &Resource::Lanes)
            .await
            .iter()
            .all(|(_, owner)| *owner == Some(a))
    );
    assert_eq!(
        give_back(place, &Resource::Lanes, a, &[stale, grants[0]]).await,
        1
    );
    assert_eq!(give_back(place, &Resource::Lanes, a, &grants[..1]).await, 0);
    assert_eq!(renew(place, &Resource::Lanes, a, LONG).await, grants[1..]);
    let taken = acquire(place, &Resource::Lanes, 2, b, LONG, 2).await;
    assert_eq!(
        taken,
        [Grant {
            epoch: grants[0].epoch + 1,
            ..grants[0]
        }]
    );
}

pub(super) async fn leaving_frees_what_was_owned_and_nothing_else<D: TestDatabase>(
    place: &Place<D>,
) {
    let [a, b] = joined(place, &Resource::Lanes, 4).await;
    let other = partitions("c");
    join(place, &other, 1, a, LONG).await;
    acquire(place, &other, 1, a, LONG, 1).await;
    acquire(place, &Resource::Lanes, 4, a, LONG, 3).await;
    let of_b = acquire(place, &Resource::Lanes, 4, b, LONG, 3).await;
    for _ in 0..2 {
        let mut session = place.begin().await;
        place
            .store
            .leave(&mut session, &Resource::Lanes, a)
            .await
            .unwrap();
        session.commit().await.unwrap();
    }
    assert_eq!(join(place, &Resource::Lanes, 4, b, LONG).await, [b]);
    assert_eq!(renew(place, &Resource::Lanes, a, LONG).await, []);
    assert_eq!(renew(place, &Resource::Lanes, b, LONG).await, of_b);
    assert_eq!(
        renew(place, &other, a, LONG).await.len(),
        1,
        "another resource stays"
    );
    assert_eq!(
        acquire(place, &Resource::Lanes, 4, b, LONG, 100)
            .await
            .len(),
        3
    );
}

pub(super) async fn a_member_that_shares_no_longer_keeps_what_it_owns<D: TestDatabase>(
    place: &Place<D>,
) {
    let [a, b] = joined(place, &Resource::Lanes, 4).await;
    let of_a = acquire(place, &Resource::Lanes, 4, a, LONG, 3).await;
    join(place, &Resource::Lanes, 4, a, Duration::ZERO).await;
    assert_eq!(join(place, &Resource::Lanes, 4, b, LONG).await, [b]);
    assert_eq!(renew(place, &Resource::Lanes, a, LONG).await, of_a);
    assert_eq!(
        acquire(place, &Resource::Lanes, 4, b, LONG, 4).await.len(),
        1
    );
}

pub(super) async fn resources_have_leases_of_their_own<D: TestDatabase>(place: &Place<D>) {
    let member = MemberId::random();
    for resource in [
        Resource::Lanes,
        partitions("a"),
        partitions("b"),
        partitions("outbox"),
    ] {
        join(place, &resource, 2, member, LONG).await;
        assert_eq!(
            acquire(place, &resource, 2, member, LONG, 10).await.len(),
            2,
            "{resource:?}"
        );
    }
    assert_eq!(renew(place, &partitions("a"), member, LONG).await.len(), 2);
    assert!(owners(place, &partitions("none")).await.is_empty());
}

pub(super) async fn members_who_take_at_the_same_time_share<D: TestDatabase>(place: &Place<D>) {
    let members: Vec<MemberId> = (0..6).map(|_| MemberId::random()).collect();
    for member in &members {
        join(place, &Resource::Lanes, 64, *member, LONG).await;
    }
    let granted = join_all(members.iter().map(async |member| {
        let mut mine = Vec::new();
        // What another transaction has locked is skipped, not waited for, so one try can find less.
        for _ in 0..50 {
            let limit = 11 - mine.len();
            mine.extend(acquire(place, &Resource::Lanes, 64, *member, LONG, limit).await);
            if mine.len() == 11 {
                break;
            }
        }
        mine
    }))
    .await;
    let numbers: Vec<u8> = granted.iter().flatten().map(|grant| grant.number).collect();
    assert_eq!(
        numbers.iter().collect::<HashSet<_>>().len(),
        numbers.len(),
        "none twice"
    );
    assert!(granted.iter().all(|mine| mine.len() <= 11));
    let mut rest = 0;
    for member in &members {
        rest += acquire(place, &Resource::Lanes, 64, *member, LONG, 64)
            .await
            .len();
    }
    assert_eq!(numbers.len() + rest, 64);
}

fn partitions(consumer: &str) -> Resource {
    Resource::partitions(consumer, Generation::first(4))
}

/// Two members of a resource.
async fn joined<D: TestDatabase>(
    place: &Place<D>,
    resource: &Resource,
    count: u8,
) -> [MemberId; 2] {
    let members = [MemberId::random(), MemberId::random()];
    for member in members {
        join(place, resource, count, member, LONG).await;
    }
    members
}

async fn join<D: TestDatabase>(
    place: &Place<D>,
    resource: &Resource,
    count: u8,
    member: MemberId,
    ttl: Duration,
) -> Vec<MemberId> {
    let mut session = place.begin().await;
    let members = place
        .store
        .join(&mut session, resource, count, member, ttl)
        .await
        .unwrap();
    session.commit().await.unwrap();
    members
}

async fn acquire<D: TestDatabase>(
    place: &Place<D>,
    resource: &Resource,
    count: u8,
    member: MemberId,
    ttl: Duration,
    limit: usize,
) -> Vec<Grant> {
    let mut session = place.begin().await;
    let mut grants = place
        .store
        .acquire(&mut session, resource, count, member, ttl, limit)
        .await
        .unwrap();
    session.commit().await.unwrap();
    grants.sort_by_key(|grant| grant.number);
    grants
}

async fn renew<D: TestDatabase>(
    place: &Place<D>,
    resource: &Resource,
    member: MemberId,
    ttl: Duration,
) -> Vec<Grant> {
    let mut session = place.begin().await;
    let grants = place
        .store
        .renew(&mut session, resource, member, ttl)
        .await
        .unwrap();
    session.commit().await.unwrap();
    grants
}

async fn give_back<D: TestDatabase>(
    place: &Place<D>,
    resource: &Resource,
    member: MemberId,
    grants: &[Grant],
) -> usize {
    let mut session = place.begin().await;
    let freed = place
        .store
        .give_back(&mut session, resource, member, grants)
        .await
        .unwrap();
    session.commit().await.unwrap();
    freed
}

async fn owners<D: TestDatabase>(
    place: &Place<D>,
    resource: &Resource,
) -> Vec<(Grant, Option<MemberId>)> {
    let mut session = place.begin().await;
    let owners = place.store.owners(&mut session, resource).await.unwrap();
    session.commit().await.unwrap();
    owners
}
