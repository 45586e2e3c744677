//! Leases when their owner is paused, has a wrong clock, loses its keeper or its database, or is
//! replaced: nobody has an effect with a lease that is another's, order holds, and the shares are
//! fair again.

use std::path::PathBuf;
use std::time::Duration;

use posta::lease::Resource;
use posta::store::Store;
use posta::{Outbox, Posta, Postgres, Sqlite};

use super::sharing::{shares, until_shares};
use crate::harness::postgres;
use crate::harness::proxy::{Proxy, Traffic};
use crate::world::child::{Deed, Orders, Service};
use crate::world::effects::{Verdict, effects_of, judge};
use crate::world::service::{
    Calls, EFFECTS, Fate, Numbered, effects_consumer, effects_service, enqueue, expected, quick,
    until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination};

on_every_combination!(what_a_paused_process_owned_is_taken_and_it_changes_nothing_when_it_wakes);

/// What every eighth message costs: a try, so that there are holds to hand over too.
fn some_fail(_key: usize, number: i64) -> Fate {
    match number % 8 {
        5 => Fate::FailTimes(1),
        _ => Fate::Succeed,
    }
}

/// Enqueues without a runtime, so that all that is running are the children.
async fn enqueue_from_outside<D: TestDatabase>(world: &World<D>, numbers: std::ops::Range<i64>) {
    let outbox = Outbox::<D>::new(world.tables.clone());
    let store = world.store();
    for number in numbers {
        let mut session = store.begin().await.expect("a transaction");
        for key in 0..8 {
            let message = Numbered {
                key: format!("k{key}"),
                number,
                fate: some_fail(key, number),
            };
            outbox.enqueue(&mut session, &message).await.expect("a row");
        }
        session.commit().await.expect("a commit");
    }
}

async fn verdict<D: TestDatabase>(store: &D::Store, numbers: i64) -> Verdict {
    let effects = effects_of::<D>(store, EFFECTS).await;
    judge(&effects, &expected(8, numbers))
}

async fn what_a_paused_process_owned_is_taken_and_it_changes_nothing_when_it_wakes<
    D: TestDatabase,
>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let victim = Service::start(&world, &Orders::default());
    let posta = effects_service(&world).await;
    until_shares::<D>(&store, &Resource::Lanes, &[32, 32]).await;
    enqueue(&posta, 8, 0..30, some_fail).await;
    victim.pause();
    victim.paused().await;
    // On SQLite it may hold the lock of whoever writes: then the other one's time runs out too, and
    // both begin anew when it wakes.
    crate::world::until("its leases have run out", async || {
        shares::<D>(&store, &Resource::Lanes).await != [32, 32]
    })
    .await;
    victim.wake();
    enqueue(&posta, 8, 30..40, some_fail).await;
    until_quiet::<D>(&store, EFFECTS, 8 * 40).await;
    until_shares::<D>(&store, &Resource::Lanes, &[32, 32]).await;
    victim.stop().await;
    posta.stop().await.expect("a drain");
    assert_eq!(verdict::<D>(&store, 40).await, Verdict::default());
}

/// Paused with its leases' rows locked: the server ends that transaction.
#[actix_rt::test]
async fn a_process_that_is_paused_while_it_renews_does_not_keep_its_leases() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    let orders = Orders {
        // Of its three keepers, each has ticked some times by then.
        at: Some((Deed::Pause, "lease.renewed", 12)),
        ..Orders::default()
    };
    let victim = Service::start(&world, &orders);
    until_shares::<Postgres>(&store, &Resource::Lanes, &[32, 32]).await;
    enqueue(&posta, 8, 0..10, some_fail).await;
    victim.paused().await;
    until_shares::<Postgres>(&store, &Resource::Lanes, &[64]).await;
    enqueue(&posta, 8, 10..20, some_fail).await;
    victim.wake();
    until_quiet::<Postgres>(&store, EFFECTS, 8 * 20).await;
    until_shares::<Postgres>(&store, &Resource::Lanes, &[32, 32]).await;
    victim.stop().await;
    posta.stop().await.expect("a drain");
    assert_eq!(verdict::<Postgres>(&store, 20).await, Verdict::default());
}

/// Three processes whose wall clocks are four hours apart.
#[actix_rt::test]
async fn wall_clocks_that_differ_disturb_nobody() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let clocks = ["+2h", "-2h", "+0"].map(|offset| Orders {
        environment: vec![
            ("LD_PRELOAD", faketime().display().to_string()),
            ("FAKETIME", offset.to_owned()),
            // What measures durations is nobody's wall clock.
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("DONT_FAKE_MONOTONIC", "1".to_owned()),
        ],
        ..Orders::default()
    });
    let services = clocks.map(|orders| Service::start(&world, &orders));
    until_shares::<Postgres>(&store, &Resource::Lanes, &[21, 21, 22]).await;
    enqueue_from_outside(&world, 0..25).await;
    until_quiet::<Postgres>(&store, EFFECTS, 8 * 25).await;
    assert_eq!(
        shares::<Postgres>(&store, &Resource::Lanes).await,
        [21, 21, 22]
    );
    for service in services {
        service.stop().await;
    }
    assert_eq!(verdict::<Postgres>(&store, 25).await, Verdict::default());
}

fn faketime() -> PathBuf {
    let folders = std::fs::read_dir("/usr/lib").expect("a folder of libraries");
    let library = |folder: PathBuf| folder.join("faketime/libfaketimeMT.so.1");
    folders
        .filter_map(|folder| Some(library(folder.ok()?.path())))
        .chain(["/usr/lib", "/usr/lib64"].map(|folder| library(folder.into())))
        .find(|library| library.is_file())
        .expect("libfaketime is installed: run tests/run")
}

/// Its keepers die at every tick, and nothing else does.
async fn a_dead_keeper_costs_its_leases_and_nothing_else<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    let orders = Orders {
        at: Some((Deed::Panic, "lease.renewed", 12)),
        ..Orders::default()
    };
    let mut victim = Service::start(&world, &orders);
    until_shares::<D>(&store, &Resource::Lanes, &[32, 32]).await;
    enqueue(&posta, 8, 0..20, some_fail).await;
    until_shares::<D>(&store, &Resource::Lanes, &[64]).await;
    enqueue(&posta, 8, 20..30, some_fail).await;
    until_quiet::<D>(&store, EFFECTS, 8 * 30).await;
    assert!(!victim.is_dead(), "more has died than keepers");
    victim.kill();
    posta.stop().await.expect("a drain");
    assert_eq!(verdict::<D>(&store, 30).await, Verdict::default());
}

#[actix_rt::test]
async fn a_dead_keeper_costs_its_leases_and_nothing_else_on_postgres_with_rabbitmq() {
    a_dead_keeper_costs_its_leases_and_nothing_else::<Postgres>(BrokerKind::RabbitMq).await;
}

#[actix_rt::test]
async fn a_dead_keeper_costs_its_leases_and_nothing_else_on_sqlite_alone() {
    a_dead_keeper_costs_its_leases_and_nothing_else::<Sqlite>(BrokerKind::Database).await;
}

#[actix_rt::test]
async fn a_process_that_loses_the_database_for_longer_than_its_leases_comes_back() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let proxy = Proxy::before(postgres::address()).await;
    let url = proxy.url(&world.database_url);
    let posta = quick(Posta::<Postgres>::builder(&url, world.broker()))
        .tables(world.tables.clone())
        .connect_timeout(Duration::from_secs(2))
        .consumer(effects_consumer::<Postgres>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let other = Service::start(&world, &Orders::default());
    until_shares::<Postgres>(&store, &Resource::Lanes, &[32, 32]).await;
    enqueue(&posta, 8, 0..20, some_fail).await;
    proxy.set(Traffic::Cut);
    until_shares::<Postgres>(&store, &Resource::Lanes, &[64]).await;
    enqueue_from_outside(&world, 20..30).await;
    proxy.set(Traffic::Pass);
    until_shares::<Postgres>(&store, &Resource::Lanes, &[32, 32]).await;
    enqueue_from_outside(&world, 30..40).await;
    until_quiet::<Postgres>(&store, EFFECTS, 8 * 40).await;
    other.stop().await;
    posta.stop().await.expect("a drain");
    assert_eq!(verdict::<Postgres>(&store, 40).await, Verdict::default());
}

/// Lease periods of the processes in [`a_rolling_restart_of_three_under_load`]: long, so that a slow
/// machine does not count.
const PERIOD: Duration = Duration::from_secs(10);

/// Each of three processes is replaced, the new one first, while messages come and are handled.
async fn a_rolling_restart_of_three_under_load<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let orders = Orders {
        lease_ttl_s: Some(PERIOD.as_secs()),
        ..Orders::default()
    };
    let mut services: Vec<Service> = (0..3).map(|_| Service::start(&world, &orders)).collect();
    until_shares::<D>(&store, &Resource::Lanes, &[21, 21, 22]).await;
    let mut next = 0;
    for _ in 0..3 {
        enqueue_from_outside(&world, next..next + 10).await;
        services.push(Service::start(&world, &orders));
        enqueue_from_outside(&world, next + 10..next + 20).await;
        services.remove(0).stop().await;
        next += 20;
    }
    let took = until_shares::<D>(&store, &Resource::Lanes, &[21, 21, 22]).await;
    assert!(took <= 2 * PERIOD, "fair again after {took:?}");
    until_quiet::<D>(&store, EFFECTS, 8 * next as usize).await;
    for service in services {
        service.stop().await;
    }
    assert_eq!(verdict::<D>(&store, next).await, Verdict::default());
}

#[actix_rt::test]
async fn a_rolling_restart_under_load_keeps_order_and_shares_on_postgres_with_rabbitmq() {
    a_rolling_restart_of_three_under_load::<Postgres>(BrokerKind::RabbitMq).await;
}

#[actix_rt::test]
async fn a_rolling_restart_under_load_keeps_order_and_shares_on_sqlite_alone() {
    a_rolling_restart_of_three_under_load::<Sqlite>(BrokerKind::Database).await;
}
