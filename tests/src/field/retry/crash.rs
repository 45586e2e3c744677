use std::time::Duration;

use crate::world::child::{Orders, Service};
use crate::world::effects::{Verdict, effects_of, judge};
use crate::world::service::{
    EFFECTS, Fate, builder, effects_service, enqueue, expected, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination};

on_every_combination!(a_process_that_dies_around_a_retry_loses_nothing_and_repeats_nothing);

/// Each child dies at one step between a failure and what comes of it; heads fail twice, and have
/// successors.
async fn a_process_that_dies_around_a_retry_loses_nothing_and_repeats_nothing<D: TestDatabase>(
    broker: BrokerKind,
) {
    let points = [
        "consume.held",
        "retry.claimed",
        "retry.handled",
        "retry.committed",
        "retry.committed_together",
    ];
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world).start().await.expect("a service");
    let mut to = 0;
    for point in points {
        let orders = Orders {
            crash_at: Some(point.to_owned()),
            ..Orders::default()
        };
        let mut victim = Service::start(&world, &orders);
        // Whether successors gather behind a head is a matter of time: more come until they have.
        while !victim.is_dead() {
            enqueue(&posta, 4, to..to + 6, |key, number| {
                match (key, number % 6) {
                    (0 | 2, 1) => Fate::FailTimes(2),
                    (1, 3) => Fate::FailTimes(1),
                    _ => Fate::Succeed,
                }
            })
            .await;
            to += 6;
            victim.dies_within(Duration::from_secs(5)).await;
        }
        // Whole again before the next death: three in a row would be counted against a message.
        let survivor = effects_service(&world).await;
        until_quiet::<D>(&store, EFFECTS, 4 * to as usize).await;
        survivor.stop().await.expect("a drain");
    }
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(4, to)), Verdict::default());
}
