//! G2: a committed message ends in exactly one of: confirmed and routed; waiting, with a visible
//! reason; dead letter.

use std::time::Duration;

use crate::world::child::{Orders, Service};
use crate::world::effects::{Verdict, count, effects_of, judge};
use crate::world::service::{
    EFFECTS, Fate, builder, effects_service, enqueue, expected, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    a_process_that_dies_while_dispatching_loses_nothing,
    a_message_that_no_queue_takes_waits_visibly_and_arrives_once_there_is_one,
    a_message_whose_process_dies_on_lease_steps_is_taken_over,
);

async fn a_process_that_dies_while_dispatching_loses_nothing<D: TestDatabase>(broker: BrokerKind) {
    let points = [
        "dispatch.claimed:2",
        "dispatch.published:2",
        "dispatch.settled:2",
    ];
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let mut to = 0;
    for point in points {
        let orders = Orders {
            crash_at: Some(point.to_owned()),
            enqueue: Some((5, to, to + 6)),
            ..Orders::default()
        };
        Service::start(&world, &orders).died().await;
        to = count::<D>(
            &store,
            "SELECT CAST(COUNT(*) / 5 AS BIGINT) AS count FROM state",
        )
        .await;
    }
    let survivor = Service::start(&world, &Orders::default());
    until_quiet::<D>(&store, EFFECTS, 5 * to as usize).await;
    survivor.stop().await;
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(5, to)), Verdict::default());
}

async fn a_message_that_no_queue_takes_waits_visibly_and_arrives_once_there_is_one<
    D: TestDatabase,
>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    // A service without consumers: no queue takes its messages.
    let lonely = builder(&world).start().await.expect("a running service");
    enqueue(&lonely, 3, 0..1, |_, _| Fate::Succeed).await;
    until("three rows are held", async || {
        lonely.status().await.unwrap().outbox.held == 3
    })
    .await;
    let reasons = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM {posta}outbox \
                   WHERE last_error LIKE 'unroutable%' AND attempts > 0";
    assert_eq!(count::<D>(&store, reasons).await, 3);
    assert!(lonely.status().await.unwrap().outbox.oldest > Duration::ZERO);
    lonely.stop().await.expect("a drain");
    let whole = effects_service(&world).await;
    until_quiet::<D>(&store, EFFECTS, 3).await;
    whole.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(3, 1)), Verdict::default());
}

async fn a_message_whose_process_dies_on_lease_steps_is_taken_over<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let mut to = 0;
    for point in ["lease.renewed:4", "lease.committed:7"] {
        let orders = Orders {
            crash_at: Some(point.to_owned()),
            enqueue: Some((5, to, to + 5)),
            ..Orders::default()
        };
        Service::start(&world, &orders).died().await;
        to = count::<D>(
            &store,
            "SELECT CAST(COUNT(*) / 5 AS BIGINT) AS count FROM state",
        )
        .await;
    }
    let survivor = Service::start(
        &world,
        &Orders {
            crash_at: None,
            enqueue: Some((5, to, to + 5)),
            ..Orders::default()
        },
    );
    to += 5;
    until_quiet::<D>(&store, EFFECTS, 5 * to as usize).await;
    survivor.stop().await;
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(5, to)), Verdict::default());
}
