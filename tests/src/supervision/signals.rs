//! SIGTERM and SIGINT: the first drains, the second aborts.

use std::time::Duration;

use posta::Postgres;

use super::child::{Orders, Service};
use crate::world::effects::effects_of;
use crate::world::effects::{Verdict, judge};
use crate::world::service::{Calls, Fate, effects_consumer};
use crate::world::service::{EFFECTS, builder, enqueue, expected, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination};

/// What a drain may take here, on a machine under load.
const QUICK: Duration = Duration::from_secs(30);

async fn a_signal_ends_an_idle_service_soon_and_well<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    for signal in ["TERM", "INT"] {
        let service = Service::start(&world, Orders::default());
        service.signal(signal);
        let (code, said, took) = service.ended();
        assert_eq!((code, said.as_str()), (Some(0), "ended: well"));
        assert!(took < QUICK, "{took:?}");
    }
}

on_every_combination!(a_signal_ends_an_idle_service_soon_and_well);

/// Enqueues messages of one key whose handler waits, and waits until the first one's does.
async fn with_one_in_flight(world: &World<Postgres>, orders: Orders) -> Service {
    let service = Service::start(world, orders);
    let enqueuer = builder(world).start().await.expect("an enqueuing service");
    enqueue(&enqueuer, 1, 0..3, |_, _| Fate::Wait).await;
    service.until_says("arrived at the gate");
    enqueuer.stop().await.expect("a drain");
    service
}

/// The same messages take effect, once and in order, with the next service.
async fn nothing_is_lost(world: &World<Postgres>) {
    let store = world.store();
    assert!(effects_of::<Postgres>(&store, EFFECTS).await.is_empty());
    let next = builder(world)
        .consumer(effects_consumer::<Postgres>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    until_quiet::<Postgres>(&store, EFFECTS, 3).await;
    next.stop().await.expect("a drain");
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(1, 3)), Verdict::default());
}

#[actix_rt::test]
async fn a_second_signal_aborts_at_once() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let orders = Orders {
        grace: Some(Duration::from_secs(600)),
        ..Orders::default()
    };
    let service = with_one_in_flight(&world, orders).await;
    service.signal("TERM");
    service.until_says("it drains");
    service.signal("INT");
    let (code, said, _) = service.ended();
    assert_eq!(code, Some(1));
    assert!(said.contains("aborted by a second signal"), "{said}");
    assert!(
        said.contains("unfinished: ") && said.contains("effects "),
        "{said}"
    );
    nothing_is_lost(&world).await;
}

/// F35, the second half: a handler that takes longer than the grace.
#[actix_rt::test]
async fn a_handler_that_outlasts_the_grace_is_undone_and_delivered_again() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let orders = Orders {
        grace: Some(Duration::from_secs(1)),
        ..Orders::default()
    };
    let service = with_one_in_flight(&world, orders).await;
    service.signal("TERM");
    let (code, said, took) = service.ended();
    assert_eq!(code, Some(1));
    assert!(said.contains("did not finish within 1s"), "{said}");
    assert!(took < QUICK, "{took:?}");
    nothing_is_lost(&world).await;
}
