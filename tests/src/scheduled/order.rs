use std::time::Duration;

use posta::store::Due;

use super::{database_now, envelope, numbered, schedule};
use crate::world::effects::{Verdict, effects_of, judge};
use crate::world::service::{EFFECTS, effects_service, expected, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination};

on_every_combination!(
    within_a_key_messages_follow_their_due_times,
    a_message_takes_its_place_when_it_is_due,
);

/// Scheduled in another order than they are due in; two at the same instant follow the order of
/// the calls.
async fn within_a_key_messages_follow_their_due_times<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    let now = database_now::<D>(&store).await;
    let at = |millis: u64| now + Duration::from_millis(millis);
    posta
        .transaction(async |tx| {
            for key in 0..5 {
                tx.enqueue_at(&numbered(key, 5), at(900))?;
                tx.enqueue_at(&numbered(key, 2), at(600))?;
                tx.enqueue_at(&numbered(key, 3), at(600))?;
                tx.enqueue_at(&numbered(key, 4), at(600))?;
                tx.enqueue_at(&numbered(key, 1), at(300))?;
                tx.enqueue(&numbered(key, 0))?;
            }
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction");
    until_quiet::<D>(&store, EFFECTS, 30).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(5, 6)), Verdict::default());
}

/// What is enqueued while it waits goes before it; what is enqueued after it has moved, behind it.
/// Both are seen with nobody dispatching in between.
async fn a_message_takes_its_place_when_it_is_due<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    schedule(
        &posta,
        envelope(0, 2),
        Due::After(Duration::from_millis(800)),
    )
    .await;
    for number in 0..2 {
        posta
            .transaction(async |tx| {
                tx.enqueue(&numbered(0, number))?;
                Ok::<_, anyhow::Error>(())
            })
            .await
            .expect("a transaction");
    }
    until_quiet::<D>(&store, EFFECTS, 3).await;
    posta
        .transaction(async |tx| {
            tx.enqueue(&numbered(0, 3))?;
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction");
    until_quiet::<D>(&store, EFFECTS, 4).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(1, 4)), Verdict::default());
}
