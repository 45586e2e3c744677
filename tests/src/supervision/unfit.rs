//! A process whose consumer fails over and over, among others.

use std::collections::BTreeSet;
use std::time::Duration;

use posta::layout::Generation;
use posta::lease::{MemberId, Resource};
use posta::store::{LeaseStore, Store};
use posta::{Postgres, Sqlite};

use super::child::{Orders, Service};
use crate::world::effects::effects_of;
use crate::world::service::{EFFECTS, Fate, builder, effects_service, enqueue};
use crate::world::{BrokerKind, TestDatabase, World, until};

const PARTITIONS: u8 = 4;
const KEYS: usize = 16;

#[actix_rt::test]
async fn others_take_what_a_failing_consumer_has_on_sqlite() {
    others_take_what_a_failing_consumer_has::<Sqlite>(BrokerKind::Database).await;
}

#[actix_rt::test]
async fn others_take_what_a_failing_consumer_has_on_postgres_and_rabbitmq() {
    others_take_what_a_failing_consumer_has::<Postgres>(BrokerKind::RabbitMq).await;
}

/// The others take all of it; and should the others go, it works alone, on trial though it is.
async fn others_take_what_a_failing_consumer_has<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let partitions = Resource::partitions(EFFECTS, Generation::first(PARTITIONS));
    let mut broken = Service::start(
        &world,
        Orders {
            panic_at: Some("consume.delivered"),
            // Longer than the test: its trial is not over before.
            stable_after: Some(Duration::from_secs(3600)),
            ..Orders::default()
        },
    );
    let its_own = until_owned::<D>(&store, &partitions, |owners| owners.len() == 1).await;
    let other = effects_service(&world).await;
    until_owned::<D>(&store, &partitions, |owners| owners.len() == 2).await;

    enqueue(&other, KEYS, 0..2, |_, _| Fate::Succeed).await;
    until("all has taken effect", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == KEYS * 2
    })
    .await;
    until_owned::<D>(&store, &partitions, |owners| {
        owners.len() == 1 && *owners != its_own
    })
    .await;
    until("it says so", async || {
        broken.has_said("leaves its work to other processes")
    })
    .await;
    // What does not fail it goes on with.
    until_owned::<D>(&store, &Resource::Lanes, |owners| owners.len() == 2).await;

    broken.heal();
    other.stop().await.expect("a drain");
    until_owned::<D>(&store, &partitions, |owners| *owners == its_own).await;
    let enqueuer = builder(&world).start().await.expect("an enqueuing service");
    enqueue(&enqueuer, KEYS, 2..3, |_, _| Fate::Succeed).await;
    enqueuer.stop().await.expect("a drain");
    until("all has taken effect", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == KEYS * 3
    })
    .await;
    broken.signal("TERM");
    let (code, said, _) = broken.ended();
    assert_eq!((code, said.as_str()), (Some(0), "ended: well"));
}

/// Waits until every lease has an owner, and they are as they should be; they.
async fn until_owned<D: TestDatabase>(
    store: &D::Store,
    resource: &Resource,
    are_right: impl Fn(&BTreeSet<MemberId>) -> bool,
) -> BTreeSet<MemberId> {
    let mut seen = BTreeSet::new();
    until(
        &format!("{resource:?} is owned by the right ones"),
        async || {
            let mut session = store.begin().await.expect("a transaction");
            let leases = store.owners(&mut session, resource).await;
            session.commit().await.expect("a commit");
            let owners: Option<BTreeSet<MemberId>> = leases
                .expect("the owners")
                .into_iter()
                .map(|(_, owner)| owner)
                .collect();
            seen = owners.unwrap_or_default();
            are_right(&seen)
        },
    )
    .await;
    seen
}
