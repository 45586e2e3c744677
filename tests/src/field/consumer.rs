//! F10 to F15: the consumer and its inbox, in a running actor system.

use std::time::{Duration, Instant};

use posta::operations::StartError;
use posta::{MessageId, Postgres, Sqlite};
use serde_json::json;

use super::{builder_on, envelope, owners, partition_of, partitions, send};
use crate::world::effects::{Verdict, dead_letters_of, effects_of, judge, rows};
use crate::world::gate::Gate;
use crate::world::service::{
    Calls, ECHOES, EFFECTS, Fate, builder, echoes_consumer, effects_consumer, effects_service,
    enqueue, expected, gated_consumer, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(copies_enqueue_nothing_while_the_first_ones_messages_still_wait);

/// F12: copies arrive while what the first one enqueued has not left yet.
async fn copies_enqueue_nothing_while_the_first_ones_messages_still_wait<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    // Nobody takes echoes yet: they stay in the outbox.
    let posta = effects_service(&world).await;
    let mut first = super::numbered(0, 0);
    first.fate = Fate::Echo;
    let id = MessageId::new();
    for copies in 1..=3 {
        let mut envelope = posta::Envelope::of(&first).expect("an envelope");
        envelope.id = id;
        // Without a key: the echo has the key, and would hold the copies up.
        envelope.key = None;
        send(&posta, vec![envelope]).await;
        until("the copy was dispatched", async || {
            rows::<D>(&store, "dispatched", "1 = 1").await == copies
        })
        .await;
    }
    until("the copies were refused", async || {
        posta.status().await.unwrap().counts.duplicates == 2
    })
    .await;
    assert_eq!(rows::<D>(&store, "outbox", "1 = 1").await, 1);
    posta.stop().await.expect("a drain");

    let posta = builder(&world)
        .consumer(effects_consumer::<D>(&Calls::default()))
        .consumer(echoes_consumer::<D>())
        .start()
        .await
        .expect("a running service");
    until_quiet::<D>(&store, ECHOES, 1).await;
    posta.stop().await.expect("a drain");
    assert_eq!(effects_of::<D>(&store, EFFECTS).await.len(), 1);
    assert_eq!(effects_of::<D>(&store, ECHOES).await.len(), 1);
}

/// F13: a process stops in the middle of a message, with a backlog prefetched and another process
/// waiting for the partition.
#[actix_rt::test]
async fn a_partition_is_handed_over_in_the_middle_of_a_message_in_order() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let gate = Gate::closed();
    let service = async || {
        builder_on(&world, world.vhost().options().prefetch(5))
            .grace(Duration::from_secs(60))
            .consumer(gated_consumer::<Postgres>(&gate))
            .start()
            .await
            .expect("a running service")
    };
    let first = service().await;
    enqueue(&first, 1, 0..20, |_, _| Fate::Wait).await;
    gate.until_arrived(1).await;
    let second = service().await;
    let stopping = actix_rt::spawn({
        let first = first.clone();
        async move { first.stop().await }
    });
    until("the second one has the idle partitions", async || {
        owners::<Postgres>(&store, &partitions()).await == [1, 3]
    })
    .await;
    assert_eq!(gate.arrived(), 1, "one message is in hand, in one process");
    assert!(effects_of::<Postgres>(&store, EFFECTS).await.is_empty());
    gate.open();
    stopping.await.expect("a task").expect("a drain");
    until_quiet::<Postgres>(&store, EFFECTS, 20).await;
    let counts = second.status().await.expect("a status").counts;
    second.stop().await.expect("a drain");
    assert!(counts.handled > 0, "the second one went on");
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(1, 20)), Verdict::default());
}

/// F14: a big queue does not come into memory at once.
#[actix_rt::test]
async fn a_slow_handler_has_no_more_in_hand_than_the_prefetch() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let gate = Gate::closed();
    let posta = builder_on(&world, world.vhost().options().prefetch(5))
        .consumer(gated_consumer::<Postgres>(&gate))
        .start()
        .await
        .expect("a running service");
    let wait = |number| {
        let mut message = super::numbered(0, number);
        message.fate = Fate::Wait;
        posta::Envelope::of(&message).expect("an envelope")
    };
    send(&posta, (0..100).map(wait).collect()).await;
    gate.until_arrived(1).await;
    until("all are at the broker", async || {
        rows::<Postgres>(&store, "dispatched", "1 = 1").await == 100
    })
    .await;
    let queue = format!("{EFFECTS}.1.{}", partition_of(0, 4));
    let shown = world
        .vhost()
        .queue_until(&queue, |queue| queue["messages"] == 100)
        .await;
    assert_eq!(shown["messages_unacknowledged"], 5, "{shown}");
    gate.open();
    until_quiet::<Postgres>(&store, EFFECTS, 100).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(1, 100)), Verdict::default());
}

/// F14: 0 would mean *no limit* to RabbitMQ.
#[actix_rt::test]
async fn a_prefetch_of_zero_does_not_start() {
    let world = World::<Sqlite>::fresh(BrokerKind::RabbitMq).await;
    let started = builder_on(&world, world.vhost().options().prefetch(0))
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .start()
        .await;
    match started.expect_err("a mistake") {
        StartError::Configuration(mistakes) => {
            assert_eq!(mistakes.len(), 1, "{mistakes:?}");
            assert!(mistakes[0].contains("prefetch"), "{mistakes:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// F15: a foreign publisher leaves everything out. Each such message becomes one dead letter with
/// its bytes; one whose handler fails waits for its next try; the next valid one is handled.
#[actix_rt::test]
async fn foreign_messages_without_properties_are_set_aside_once_and_block_nothing() {
    foreign_messages::<Sqlite>().await;
    foreign_messages::<Postgres>().await;
}

async fn foreign_messages<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::RabbitMq).await;
    let (store, vhost) = (world.store(), world.vhost());
    let posta = effects_service(&world).await;
    let key = format!("test.numbered.{}", envelope(0, 0).slot().number());
    let queue = format!("{EFFECTS}.1.{}", partition_of(0, 4));
    vhost
        .queue_until(&queue, |queue| queue["consumers"] == 1)
        .await;

    let began = Instant::now();
    vhost.publish_bytes(&key, &json!({}), b"\xff\0no properties");
    let empty = json!({"type": "test.numbered", "message_id": ""});
    vhost.publish_bytes(&key, &empty, b"\0empty id");
    let id = || MessageId::new().to_string();
    let valid = |fate: Fate, number: i64| {
        let mut message = super::numbered(0, number);
        message.fate = fate;
        serde_json::to_vec(&message).expect("JSON")
    };
    let properties = json!({"type": "test.numbered", "message_id": id()});
    vhost.publish_bytes(&key, &properties, &valid(Fate::FailTimes(1), 0));
    let properties = json!({"type": "test.numbered", "message_id": id()});
    vhost.publish_bytes(&key, &properties, &valid(Fate::Succeed, 1));

    until_quiet::<D>(&store, EFFECTS, 2).await;
    // The slot in the routing key is not the one that the message's id would have; the next try
    // comes in time all the same.
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    vhost
        .queue_until(&queue, |queue| queue["messages"] == 0)
        .await;
    let counts = posta.status().await.expect("a status").counts;
    posta.stop().await.expect("a drain");
    assert_eq!((counts.dead_letters, counts.held), (2, 1));
    let letters = dead_letters_of::<D>(&store).await;
    let payloads: Vec<&[u8]> = letters.iter().map(|letter| &letter.payload[..]).collect();
    assert_eq!(payloads, [&b"\xff\0no properties"[..], b"\0empty id"]);
    for letter in letters {
        assert_eq!(letter.consumer.as_deref(), Some(EFFECTS));
        assert_eq!(
            (letter.reason.as_str(), letter.error.as_str()),
            ("malformed", "message id is missing")
        );
    }
    let ids: Vec<_> = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(ids.len(), 2);
}
