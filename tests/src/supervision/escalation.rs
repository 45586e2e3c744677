//! Past the budgets: a concern that cannot be mended.

use std::time::Duration;

use posta::supervision::PastBudget;
use posta::{Postgres, Sqlite};

use super::child::{Orders, Service};
use crate::world::effects::effects_of;
use crate::world::service::{EFFECTS, Fate, builder, enqueue};
use crate::world::{BrokerKind, TestDatabase, World, until};

/// Starts a service whose partitions of the first consumer panic over every delivery.
async fn broken<D: TestDatabase>(world: &World<D>, past_budget: PastBudget) -> Service {
    let service = Service::start(
        world,
        Orders {
            panic_at: Some("consume.admitted"),
            past_budget,
            stable_after: Some(STABLE_AFTER),
            ..Orders::default()
        },
    );
    let enqueuer = builder(world).start().await.expect("an enqueuing service");
    enqueue(&enqueuer, 1, 0..1, |_, _| Fate::Succeed).await;
    enqueuer.stop().await.expect("a drain");
    service
}

const STABLE_AFTER: Duration = Duration::from_secs(2);

/// What its child says when it has failed.
const FAILED: &str = "\"consumer effects\" has failed past every budget: effects ";

#[actix_rt::test]
async fn a_runtime_that_has_failed_drains_and_exits_if_so_configured() {
    let world = World::<Sqlite>::fresh(BrokerKind::Database).await;
    let service = broken(&world, PastBudget::Exit).await;
    let (code, said, _) = service.ended();
    assert_eq!(code, Some(1));
    assert!(
        said.contains("ended: the runtime has failed: consumer effects: effects "),
        "{said}"
    );
    assert!(
        said.contains("panicked: told to panic at consume.admitted (at "),
        "{said}"
    );
    assert!(!said.contains("unfinished"), "{said}");
}

#[actix_rt::test]
async fn a_runtime_that_has_failed_stays_up_says_so_and_still_drains() {
    // RabbitMQ would count the deliveries, and the message would be handled apart.
    let world = World::<Postgres>::fresh(BrokerKind::Database).await;
    let mut service = broken(&world, PastBudget::StayUnhealthy).await;
    let said = service.until_says(FAILED);
    assert!(said.contains("health: live, not ready"), "{said}");
    assert!(service.is_alive());
    service.heal();
    service.signal("TERM");
    let (code, said, _) = service.ended();
    assert_eq!((code, said.as_str()), (Some(0), "ended: well"));
}

#[actix_rt::test]
async fn a_runtime_that_has_failed_recovers_once_the_cause_has_gone() {
    let world = World::<Sqlite>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let mut service = broken(&world, PastBudget::StayUnhealthy).await;
    service.until_says(FAILED);
    service.heal();
    until("what was in the way has taken effect", async || {
        effects_of::<Sqlite>(&store, EFFECTS).await.len() == 1
    })
    .await;
    service.until_says_just("health: live, ready");
    service.signal("TERM");
    let (code, said, _) = service.ended();
    assert_eq!((code, said.as_str()), (Some(0), "ended: well"));
}
