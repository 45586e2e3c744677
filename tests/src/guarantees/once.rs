//! G3: effect once, however often a message is delivered.

use posta::store::Store;

use crate::world::effects::{Verdict, count, effects_of, judge};
use crate::world::service::{
    Calls, ECHOES, EFFECTS, Fate, builder, echoes_consumer, effects_consumer, enqueue, expected,
    until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination};

on_every_combination!(every_effect_and_every_message_of_a_handler_commits_once);

async fn every_effect_and_every_message_of_a_handler_commits_once<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        .consumer(effects_consumer::<D>(&Calls::default()))
        .consumer(echoes_consumer::<D>())
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 10, 0..10, |_, _| Fate::Echo).await;
    until_quiet::<D>(&store, EFFECTS, 100).await;
    until_quiet::<D>(&store, ECHOES, 100).await;
    posta.stop().await.expect("a drain");
    for consumer in [EFFECTS, ECHOES] {
        let effects = effects_of::<D>(&store, consumer).await;
        assert_eq!(judge(&effects, &expected(10, 10)), Verdict::default(), "{consumer}");
    }
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM {posta}dispatched";
    assert_eq!(count::<D>(&store, sql).await, 200);
    let _ = store.tables();
}
