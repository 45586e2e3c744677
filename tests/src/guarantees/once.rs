//! G3: for each (consumer, message id) the handler's effects and what it enqueues commit once,
//! however often the message is delivered and wherever a process dies.

use posta::{Envelope, MessageId};

use crate::world::child::{Orders, Service};
use crate::world::effects::{Verdict, count, effects_of, judge};
use crate::world::service::{
    Calls, ECHOES, EFFECTS, Fate, Numbered, builder, echoes_consumer, effects_consumer, enqueue,
    expected, named_consumer, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    every_effect_and_every_message_of_a_handler_commits_once,
    copies_in_sequence_change_nothing_and_enqueue_nothing,
    two_consumers_of_one_message_each_handle_it_once,
    a_process_that_dies_while_consuming_leaves_each_effect_once,
);

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
        assert_eq!(
            judge(&effects, &expected(10, 10)),
            Verdict::default(),
            "{consumer}"
        );
    }
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM {posta}dispatched";
    assert_eq!(count::<D>(&store, sql).await, 200);
}

/// The same id enqueued again after the first copy left: a copy that travels the whole way.
async fn copies_in_sequence_change_nothing_and_enqueue_nothing<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let calls = Calls::default();
    let posta = builder(&world)
        .consumer(effects_consumer::<D>(&calls))
        .consumer(echoes_consumer::<D>())
        .start()
        .await
        .expect("a running service");
    let id = MessageId::new();
    let message = Numbered {
        key: "k0".to_owned(),
        number: 0,
        fate: Fate::Echo,
    };
    for copies in 1..=3 {
        let mut envelope = Envelope::of(&message).expect("an envelope");
        envelope.id = id;
        posta
            .transaction(async |tx| {
                tx.enqueue_envelope(envelope)?;
                Ok::<_, anyhow::Error>(())
            })
            .await
            .expect("a transaction");
        // The echo of the first copy, and nothing more of the others.
        until("the copy was dispatched", async || {
            let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM {posta}dispatched";
            count::<D>(&store, sql).await == copies + 1
        })
        .await;
    }
    until("the copies were refused", async || {
        posta.status().await.unwrap().counts.duplicates >= 2
    })
    .await;
    until_quiet::<D>(&store, ECHOES, 1).await;
    posta.stop().await.expect("a drain");
    assert_eq!(effects_of::<D>(&store, EFFECTS).await.len(), 1);
    assert_eq!(effects_of::<D>(&store, ECHOES).await.len(), 1);
    assert_eq!(calls.count(), 1);
}

async fn two_consumers_of_one_message_each_handle_it_once<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let (billing, shipping) = (Calls::default(), Calls::default());
    let posta = builder(&world)
        .consumer(named_consumer::<D>("billing", &billing))
        .consumer(named_consumer::<D>("shipping", &shipping))
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 3, 0..5, |_, _| Fate::Succeed).await;
    for consumer in ["billing", "shipping"] {
        until_quiet::<D>(&store, consumer, 15).await;
        let effects = effects_of::<D>(&store, consumer).await;
        assert_eq!(
            judge(&effects, &expected(3, 5)),
            Verdict::default(),
            "{consumer}"
        );
    }
    posta.stop().await.expect("a drain");
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM {posta}inbox";
    assert_eq!(count::<D>(&store, sql).await, 30);
}

async fn a_process_that_dies_while_consuming_leaves_each_effect_once<D: TestDatabase>(
    broker: BrokerKind,
) {
    let points = [
        "consume.admitted:2",
        "consume.handled:2",
        "consume.committed:2",
        "consume.acknowledged:2",
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
        // The next one goes on where this one was interrupted: the state tells.
        to = count::<D>(
            &store,
            "SELECT CAST(COUNT(*) / 5 AS BIGINT) AS count FROM state",
        )
        .await;
    }
    let survivor = Service::start(&world, &Orders::default());
    until_quiet::<D>(&store, EFFECTS, 5 * to as usize).await;
    until_quiet::<D>(&store, ECHOES, 5 * to as usize).await;
    survivor.stop().await;
    for consumer in [EFFECTS, ECHOES] {
        let effects = effects_of::<D>(&store, consumer).await;
        assert_eq!(
            judge(&effects, &expected(5, to)),
            Verdict::default(),
            "{consumer}"
        );
    }
}
