//! G5: a key that fails delays no other; an outage uses up nobody's attempts.

use crate::world::effects::{Verdict, count, effects_of, judge};
use crate::world::service::{Calls, EFFECTS, Fate, builder, effects_consumer, enqueue, expected};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(a_key_that_always_fails_delays_no_other_key,);

async fn a_key_that_always_fails_delays_no_other_key<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        .consumer(effects_consumer::<D>(&Calls::default()))
        // Less than the failing key's messages: held ones must not fill the window.
        .consume_batch(8)
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 10, 0..40, |key, _| match key {
        3 => Fate::FailTimes(u32::MAX),
        _ => Fate::Succeed,
    })
    .await;
    until("the nine other keys are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 360
    })
    .await;
    until("the tenth key's messages are all on hold", async || {
        posta.status().await.unwrap().consumers[0].held == 40
    })
    .await;
    let status = posta.status().await.unwrap();
    assert_eq!(status.consumers[0].held_keys, 1);
    let visible = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM {posta}retry \
                   WHERE attempts > 0 AND last_error LIKE '%told to fail%' AND ordering_key = 'k3'";
    assert_eq!(count::<D>(&store, visible).await, 1);
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    let mut others = expected(10, 40);
    others.remove("k3");
    assert_eq!(judge(&effects, &others), Verdict::default());
}
