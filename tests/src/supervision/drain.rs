//! How a runtime in this process ends.

use std::time::{Duration, Instant};

use posta::operations::settings::LEASE_TTL_MAX;
use posta::{Broker, Posta, Postgres, Sqlite};

use crate::world::effects::{effects_of, rows};
use crate::world::gate::Gate;
use crate::world::service::{Calls, EFFECTS, Fate, builder, effects_consumer, enqueue};
use crate::world::service::{gated_consumer, quick};
use crate::world::{BrokerKind, PATIENCE, TestDatabase, World, on_every_combination, until};

/// What a drain may take here, on a machine under load; without load it is a fraction of a second.
const QUICK: Duration = Duration::from_secs(30);

/// With the longest leases and polls that there are: whoever waited for a tick or a look would wait
/// for minutes.
async fn a_drain_without_traffic_waits_for_no_tick_and_no_poll<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let posta = Posta::<D>::builder(&world.database_url, world.broker())
        .tables(world.tables.clone())
        .lease_ttl(LEASE_TTL_MAX)
        .poll_interval_max(Duration::from_secs(60))
        .grace(PATIENCE)
        .consumer(effects_consumer::<D>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    until("it is ready", async || posta.health().ready).await;
    posta.declared().await;
    until("it rests", async || posta.health().reasons.is_empty()).await;
    let began = Instant::now();
    posta.stop().await.expect("a drain");
    let took = began.elapsed();
    eprintln!("{} on {broker:?}: an idle drain took {took:?}", D::KIND);
    assert!(took < QUICK, "{took:?}");
    let left = rows::<D>(&world.store(), "lease", "owner IS NOT NULL").await;
    assert_eq!(left, 0, "leases are given back");
}

/// Whatever has come up so far.
async fn a_service_that_has_just_begun_can_be_stopped_and_more_than_once<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    for _ in 0..3 {
        let posta = builder(&world)
            .consumer(effects_consumer::<D>(&Calls::default()))
            .start()
            .await
            .expect("a running service");
        let (one, other, ended) = tokio::join!(posta.stop(), posta.stop(), posta.ended());
        one.expect("a drain");
        other.expect("the same drain");
        ended.expect("its end");
        posta.stop().await.expect("it has ended");
        assert!(!posta.health().ready);
    }
}

on_every_combination!(
    a_drain_without_traffic_waits_for_no_tick_and_no_poll,
    a_service_that_has_just_begun_can_be_stopped_and_more_than_once,
);

#[actix_rt::test]
async fn a_broker_that_is_not_there_does_not_hold_up_a_drain() {
    let world = World::<Sqlite>::fresh(BrokerKind::Database).await;
    // Nobody listens there.
    let broker = Broker::from_url("amqp://guest:guest@127.0.0.1:1/%2f").expect("a valid URL");
    let builder = quick(Posta::<Sqlite>::builder(&world.database_url, broker));
    let posta = builder
        .tables(world.tables.clone())
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 2, 0..1, |_, _| Fate::Succeed).await;
    until("somebody misses the broker", async || {
        posta
            .health()
            .reasons
            .iter()
            .any(|it| it.contains("waits: "))
    })
    .await;
    let health = posta.health();
    assert!(health.live, "{health}");
    let began = Instant::now();
    posta.stop().await.expect("a drain");
    assert!(began.elapsed() < QUICK, "{:?}", began.elapsed());
}

/// F35: one in flight, the others of its queue delivered and not begun.
#[actix_rt::test]
async fn a_drain_finishes_what_is_in_flight_and_gives_the_rest_back() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let gate = Gate::closed();
    let posta = builder(&world)
        .consume_batch(1)
        .consumer(gated_consumer::<Postgres>(&gate).partitions(1))
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 1, 0..5, |_, _| Fate::Wait).await;
    gate.until_arrived(1).await;
    until("all are dispatched", async || {
        rows::<Postgres>(&store, "dispatched", "true").await == 5
    })
    .await;
    let stopping = posta.clone();
    let stopping = actix_rt::spawn(async move { stopping.stop().await });
    until("it drains", async || !posta.health().ready).await;
    gate.open();
    stopping.await.expect("a stop").expect("a drain in time");
    assert_eq!(effects_of::<Postgres>(&store, EFFECTS).await.len(), 1);
    assert_eq!(gate.arrived(), 1, "nothing else was begun");
    let queue = format!("{EFFECTS}.1.0");
    world
        .vhost()
        .queue_until(&queue, |queue| queue["messages_ready"] == 4)
        .await;
}
