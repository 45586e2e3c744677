//! G5: a key that fails delays no other; an outage uses up nobody's attempts.

use crate::world::effects::{Verdict, count, effects_of, judge};
use posta::{Consumer, Failure, Tx};

use crate::world::service::{
    Calls, EFFECTS, Fate, Numbered, builder, effects_consumer, enqueue, expected,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    a_key_that_always_fails_delays_no_other_key,
    effects_that_the_database_refuses_at_the_commit_hold_their_own_key_only,
);

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

/// The handler itself succeeds; a deferred constraint stops the commit, of a batch and then of a
/// retry.
async fn effects_that_the_database_refuses_at_the_commit_hold_their_own_key_only<
    D: TestDatabase,
>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let run = async |sql: &str| {
        let mut session = posta::store::Store::begin(&store)
            .await
            .expect("a transaction");
        D::run(&mut session, sql)
            .await
            .expect("the test's own statements");
        session.commit().await.expect("a commit");
    };
    run(
        "CREATE TABLE parent (id bigint PRIMARY KEY); INSERT INTO parent VALUES (0); \
         CREATE TABLE child (parent bigint REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)",
    )
    .await;
    let posta = builder(&world)
        .consumer(Consumer::named("children").handle_with::<Numbered, _>(on_child::<D>))
        .start()
        .await
        .expect("a running service");
    // Key k1 wants a parent that is not there.
    enqueue(&posta, 2, 0..3, |_, _| Fate::Succeed).await;
    let children = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM child";
    until(
        "the other key is through and this one is on hold",
        async || {
            let status = posta.status().await.unwrap();
            count::<D>(&store, children).await == 3 && status.consumers[0].held == 3
        },
    )
    .await;
    let tried = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM {posta}retry WHERE attempts > 1";
    until("the head was tried again", async || {
        count::<D>(&store, tried).await == 1
    })
    .await;
    run("INSERT INTO parent VALUES (1)").await;
    until("all are through", async || {
        count::<D>(&store, children).await == 6
    })
    .await;
    posta.stop().await.expect("a drain");
}

async fn on_child<D: TestDatabase>(message: Numbered, tx: &mut Tx<'_, D>) -> Result<(), Failure> {
    let parent = i64::from(message.key == "k1");
    D::run(tx, &format!("INSERT INTO child VALUES ({parent})")).await?;
    Ok(())
}
