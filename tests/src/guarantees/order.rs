//! G4: for one ordering key, handlers take effect in enqueue order, whatever fails, dies, or is
//! handed over.

use std::time::Duration;

use crate::world::child::{Orders, Service};
use crate::world::effects::{Verdict, effects_of, judge};
use crate::world::service::{EFFECTS, Fate, effects_service, enqueue, expected, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination};

on_every_combination!(
    successors_wait_for_a_failing_head_and_run_in_order,
    order_holds_across_three_processes_of_which_two_are_killed,
    order_holds_when_partitions_are_handed_over_under_load,
);

async fn successors_wait_for_a_failing_head_and_run_in_order<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    // Heads, middles and neighbours fail or panic, some more than once.
    enqueue(&posta, 6, 0..12, |key, number| match (key, number) {
        (0, 0) | (1, 5) => Fate::FailTimes(3),
        (2, 3) | (2, 4) => Fate::PanicTimes(1),
        (3, 11) => Fate::FailTimes(1),
        _ => Fate::Succeed,
    })
    .await;
    until_quiet::<D>(&store, EFFECTS, 72).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(6, 12)), Verdict::default());
}

async fn order_holds_across_three_processes_of_which_two_are_killed<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let victims: Vec<Service> = (0..2)
        .map(|_| Service::start(&world, &Orders::default()))
        .collect();
    let posta = effects_service(&world).await;
    let mut next = 0;
    for victim in victims {
        enqueue(&posta, 8, next..next + 20, |_, number| match number % 10 {
            7 => Fate::FailTimes(1),
            _ => Fate::Succeed,
        })
        .await;
        next += 20;
        victim.kill();
    }
    until_quiet::<D>(&store, EFFECTS, 8 * next as usize).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(8, next)), Verdict::default());
}

async fn order_holds_when_partitions_are_handed_over_under_load<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    let mut next = 0;
    for _ in 0..2 {
        // Joins, takes its share, and leaves again, while messages flow.
        let visitor = Service::start(&world, &Orders::default());
        for _ in 0..8 {
            enqueue(&posta, 8, next..next + 3, |_, _| Fate::Succeed).await;
            next += 3;
            actix_rt::time::sleep(Duration::from_millis(150)).await;
        }
        visitor.stop().await;
    }
    until_quiet::<D>(&store, EFFECTS, 8 * next as usize).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(8, next)), Verdict::default());
}
