//! Several processes on one database share lanes and partitions fairly, and take over from a killed
//! one within a lease period.

use std::collections::BTreeMap;
use std::time::Duration;

use posta::layout::Generation;
use posta::lease::{MemberId, Resource};
use posta::store::{LeaseStore, Store};

use crate::world::child::{Orders, Service};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(processes_share_fairly_and_a_killed_ones_work_moves_within_a_lease_period);

pub(super) async fn shares<D: TestDatabase>(store: &D::Store, resource: &Resource) -> Vec<usize> {
    let mut session = store.begin().await.expect("a transaction");
    let owners = store
        .owners(&mut session, resource)
        .await
        .expect("the owners");
    session.commit().await.expect("a commit");
    let mut shares: BTreeMap<MemberId, usize> = BTreeMap::new();
    for owner in owners.into_iter().filter_map(|(_, owner)| owner) {
        *shares.entry(owner).or_default() += 1;
    }
    let mut shares: Vec<usize> = shares.into_values().collect();
    shares.sort_unstable();
    shares
}

pub(super) async fn until_shares<D: TestDatabase>(
    store: &D::Store,
    resource: &Resource,
    expected: &[usize],
) -> Duration {
    let started = std::time::Instant::now();
    until(
        &format!("{resource:?} is shared {expected:?}"),
        async || shares::<D>(store, resource).await == expected,
    )
    .await;
    started.elapsed()
}

async fn processes_share_fairly_and_a_killed_ones_work_moves_within_a_lease_period<
    D: TestDatabase,
>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let partitions = Resource::partitions(crate::world::service::EFFECTS, Generation::first(4));
    let first = Service::start(&world, &Orders::default());
    until_shares::<D>(&store, &Resource::Lanes, &[64]).await;
    let second = Service::start(&world, &Orders::default());
    until_shares::<D>(&store, &Resource::Lanes, &[32, 32]).await;
    until_shares::<D>(&store, &partitions, &[2, 2]).await;
    let third = Service::start(&world, &Orders::default());
    until_shares::<D>(&store, &Resource::Lanes, &[21, 21, 22]).await;
    until_shares::<D>(&store, &partitions, &[1, 1, 2]).await;
    second.kill();
    // The lease period of the test's services is 4 s, and a tick is a third of it.
    until_shares::<D>(&store, &Resource::Lanes, &[32, 32]).await;
    until_shares::<D>(&store, &partitions, &[2, 2]).await;
    third.stop().await;
    // One that drains gives its leases back: no lease has to expire.
    until_shares::<D>(&store, &Resource::Lanes, &[64]).await;
    first.stop().await;
    until_shares::<D>(&store, &Resource::Lanes, &[]).await;
}
