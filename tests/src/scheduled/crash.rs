use std::time::Duration;

use posta::store::{Database, Due, Store};

use super::{database_now, due, envelope, scheduled};
use crate::world::child::{Orders, Service};
use crate::world::effects::{Verdict, effects_of, judge, rows};
use crate::world::service::{EFFECTS, expected, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    a_process_that_dies_around_the_move_sends_each_message_once,
    two_processes_of_which_one_is_killed_send_in_order,
);

/// Schedules numbers of each key, `apart` from each other, from outside any process that dispatches.
async fn schedule_all<D: TestDatabase>(
    store: &D::Store,
    keys: usize,
    numbers: std::ops::Range<i64>,
    apart: Duration,
) {
    let now = database_now::<D>(store).await;
    let mut rows = Vec::new();
    for (step, number) in (0u32..).zip(numbers) {
        for key in 0..keys {
            rows.push(due(envelope(key, number), Due::At(now + apart * step)));
        }
    }
    let mut session = store.begin().await.expect("a transaction");
    <D as Database>::insert_scheduled(&mut session, store.tables(), &rows)
        .await
        .expect("rows");
    session.commit().await.expect("a commit");
}

/// Before the move is committed, and at each boundary after it.
async fn a_process_that_dies_around_the_move_sends_each_message_once<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let points = [
        "dispatch.enqueued_due",
        "dispatch.enqueued_due:2",
        "dispatch.published",
        "dispatch.settled",
    ];
    for (number, point) in (0..).zip(points) {
        // So that there is something to move for each of them, and more than once.
        schedule_all::<D>(&store, 5, 2 * number..2 * number + 1, Duration::ZERO).await;
        let orders = Orders {
            crash_at: Some(point.to_owned()),
            ..Orders::default()
        };
        schedule_all::<D>(&store, 5, 2 * number + 1..2 * number + 2, Duration::ZERO).await;
        Service::start(&world, &orders).died().await;
    }
    let survivor = Service::start(&world, &Orders::default());
    until_quiet::<D>(&store, EFFECTS, 40).await;
    survivor.stop().await;
    assert_eq!(scheduled::<D>(&store).await, 0);
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(5, 8)), Verdict::default());
    assert_eq!(rows::<D>(&store, "dispatched", "1 = 1").await, 40);
}

async fn two_processes_of_which_one_is_killed_send_in_order<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let survivor = Service::start(&world, &Orders::default());
    let victim = Service::start(&world, &Orders::default());
    schedule_all::<D>(&store, 8, 0..30, Duration::from_millis(50)).await;
    until("half of them are sent", async || {
        effects_of::<D>(&store, EFFECTS).await.len() >= 100
    })
    .await;
    victim.kill();
    until("all have moved", async || scheduled::<D>(&store).await == 0).await;
    until_quiet::<D>(&store, EFFECTS, 240).await;
    survivor.stop().await;
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(8, 30)), Verdict::default());
    assert_eq!(rows::<D>(&store, "dispatched", "1 = 1").await, 240);
}
