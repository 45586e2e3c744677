//! F20 to F26: the connection to the broker, under a running actor system; and a client that nobody
//! here wrote.

use std::process::Command;
use std::time::{Duration, Instant};

use posta::broker::rabbitmq::RabbitMqOptions;
use posta::{Envelope, MessageId, Postgres, Sqlite};
use serde_json::json;

use super::{builder_on, envelope, last_error_of, partition_of, partitions_of, send, state_of};
use crate::harness::proxy::{Proxy, Traffic};
use crate::world::effects::{Verdict, dead_letters_of, effects_of, judge, rows};
use crate::world::gate::Gate;
use crate::world::service::{
    Calls, ECHOES, EFFECTS, Echo, Fate, builder, echoes_consumer, effects_consumer, enqueue,
    expected, gated_consumer, until_quiet,
};
use crate::world::{BrokerKind, World, until};

/// How soon work must go on when the broker is there again.
const SOON: Duration = Duration::from_secs(10);

/// F20: the exchange is deleted under a running system. The broker closes the channel over it; that
/// is no row's attempt, and exchange and bindings are made again.
#[actix_rt::test]
async fn a_deleted_exchange_is_nobodys_attempt_and_is_made_again_with_its_bindings() {
    let world = World::<Sqlite>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let posta = builder(&world)
        .arbiters(1)
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 4, 0..1, |_, _| Fate::Succeed).await;
    until_quiet::<Sqlite>(&store, EFFECTS, 4).await;

    world.vhost().delete_exchange();
    let began = Instant::now();
    enqueue(&posta, 4, 1..4, |_, _| Fate::Succeed).await;
    until_quiet::<Sqlite>(&store, EFFECTS, 16).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let told = last_error_of(&posta, "dispatcher 0");
    assert!(told.contains("NOT_FOUND - no exchange 'posta'"), "{told}");
    posta.stop().await.expect("a drain");
    assert_eq!(
        rows::<Sqlite>(&store, "dispatched", "attempts > 0").await,
        0
    );
    let effects = effects_of::<Sqlite>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(4, 4)), Verdict::default());
}

/// F22 (a): the broker goes away and comes back.
#[actix_rt::test]
async fn a_restart_of_the_broker_is_seen_and_work_goes_on_soon_after() {
    let world = World::<Postgres>::alone().await;
    let (store, vhost) = (world.store(), world.vhost());
    let posta = builder(&world)
        .consumer(effects_consumer::<Postgres>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 4, 0..1, |_, _| Fate::Succeed).await;
    until_quiet::<Postgres>(&store, EFFECTS, 4).await;
    assert!(posta.registry().is_healthy());

    vhost.control("rabbitmq-stop", None).await;
    until("every partition misses the broker", async || {
        let partitions = partitions_of(EFFECTS, 4);
        partitions
            .iter()
            .all(|name| state_of(&posta, name).contains("broker"))
    })
    .await;
    assert!(!posta.registry().is_healthy());
    enqueue(&posta, 4, 1..2, |_, _| Fate::Succeed).await;
    vhost.control("rabbitmq-start", None).await;
    let began = Instant::now();
    enqueue(&posta, 4, 2..6, |_, _| Fate::Succeed).await;
    until_quiet::<Postgres>(&store, EFFECTS, 24).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    until("all is well", async || posta.registry().is_healthy()).await;
    for number in 0..4 {
        let queue = format!("{EFFECTS}.1.{number}");
        vhost
            .queue_until(&queue, |queue| queue["consumers"] == 1)
            .await;
    }
    posta.stop().await.expect("a drain");
    assert_eq!(
        rows::<Postgres>(&store, "dispatched", "attempts > 0").await,
        0
    );
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(4, 6)), Verdict::default());
}

/// F22 (b): somebody deletes the queue, and the connection stays up.
#[actix_rt::test]
async fn a_deleted_queue_is_seen_and_made_again() {
    let world = World::<Sqlite>::fresh(BrokerKind::RabbitMq).await;
    let (store, vhost) = (world.store(), world.vhost());
    let posta = builder(&world)
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 4, 0..1, |_, _| Fate::Succeed).await;
    until_quiet::<Sqlite>(&store, EFFECTS, 4).await;
    let number = partition_of(0, 4);
    let (queue, child) = (
        format!("{EFFECTS}.1.{number}"),
        format!("{EFFECTS} {number}"),
    );
    vhost
        .queue_until(&queue, |queue| queue["messages"] == 0)
        .await;

    vhost.delete_queue(&queue);
    let began = Instant::now();
    enqueue(&posta, 1, 1..6, |_, _| Fate::Succeed).await;
    until_quiet::<Sqlite>(&store, EFFECTS, 9).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    let told = last_error_of(&posta, &child);
    assert!(told.contains("cancelled the consumer"), "{told}");
    assert!(posta.registry().is_healthy());
    for other in partitions_of(EFFECTS, 4)
        .iter()
        .filter(|other| **other != child)
    {
        assert_eq!(last_error_of(&posta, other), "");
    }
    vhost
        .queue_until(&queue, |queue| queue["consumers"] == 1)
        .await;
    posta.stop().await.expect("a drain");
    let of_k0: Vec<_> = effects_of::<Sqlite>(&store, EFFECTS)
        .await
        .into_iter()
        .filter(|effect| effect.key == "k0")
        .collect();
    assert_eq!(judge(&of_k0, &expected(1, 6)), Verdict::default());
}

/// F23: the network swallows everything and no socket says so.
#[actix_rt::test]
async fn a_silent_network_is_noticed_by_heartbeats_and_work_goes_on_after_it() {
    let world = World::<Sqlite>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let proxy = Proxy::before(world.vhost().address()).await;
    let options = RabbitMqOptions::from_url(&proxy.url(&world.broker_url))
        .expect("a valid URL")
        .heartbeat(Duration::from_secs(2))
        .connect_timeout(Duration::from_secs(1))
        .answer_timeout(Duration::from_secs(1));
    let posta = builder_on(&world, options)
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 4, 0..1, |_, _| Fate::Succeed).await;
    until_quiet::<Sqlite>(&store, EFFECTS, 4).await;
    let accepted = proxy.accepted();
    assert_eq!(*accepted.borrow(), 2, "one connection for each use");

    proxy.set(Traffic::Stall);
    let began = Instant::now();
    enqueue(&posta, 4, 1..2, |_, _| Fate::Succeed).await;
    until("there is an attempt to connect", async || {
        *accepted.borrow() > 2
    })
    .await;
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    until("every partition misses the broker", async || {
        let partitions = partitions_of(EFFECTS, 4);
        partitions
            .iter()
            .all(|name| state_of(&posta, name).contains("broker"))
    })
    .await;
    assert!(!posta.registry().is_healthy());

    proxy.set(Traffic::Pass);
    let began = Instant::now();
    enqueue(&posta, 4, 2..6, |_, _| Fate::Succeed).await;
    until_quiet::<Sqlite>(&store, EFFECTS, 24).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    until("all is well", async || posta.registry().is_healthy()).await;
    posta.stop().await.expect("a drain");
    assert_eq!(
        rows::<Sqlite>(&store, "dispatched", "attempts > 0").await,
        0
    );
    let effects = effects_of::<Sqlite>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(4, 6)), Verdict::default());
}

/// F24: an alarm blocks publishing. What is in the queues is handled all the same, nothing counts
/// against a row, a stop is quick.
#[actix_rt::test]
async fn an_alarm_stops_publishing_only_and_does_not_delay_a_stop() {
    let world = World::<Postgres>::alone().await;
    let (store, vhost) = (world.store(), world.vhost());
    let gate = Gate::closed();
    let posta = builder(&world)
        .consumer(gated_consumer::<Postgres>(&gate))
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 1, 0..20, |_, _| Fate::Wait).await;
    gate.until_arrived(1).await;
    until("twenty are at the broker", async || {
        rows::<Postgres>(&store, "dispatched", "1 = 1").await == 20
    })
    .await;

    let alarm = vhost.block().await;
    enqueue(&posta, 1, 20..40, |_, _| Fate::Wait).await;
    gate.open();
    until("what was at the broker is handled", async || {
        effects_of::<Postgres>(&store, EFFECTS).await.len() == 20
    })
    .await;
    let queue = format!("{EFFECTS}.1.{}", partition_of(0, 4));
    vhost
        .queue_until(&queue, |queue| queue["messages"] == 0)
        .await;
    until("the dispatcher says why it waits", async || {
        let children = posta.registry().children();
        let dispatchers = children
            .iter()
            .filter(|(name, _)| name.starts_with("dispatcher"));
        dispatchers.into_iter().any(|(name, _)| {
            let told = state_of(&posta, name);
            told.contains("blocked publishing") && told.contains("low on memory")
        })
    })
    .await;
    assert!(!posta.registry().is_healthy());
    let (waiting, sent) = (
        rows::<Postgres>(&store, "outbox", "attempts = 0").await,
        rows::<Postgres>(&store, "dispatched", "1 = 1").await,
    );
    assert_eq!((waiting, sent), (20, 20));
    let began = Instant::now();
    posta.stop().await.expect("a drain");
    let stopped = began.elapsed();
    drop(alarm);
    assert!(stopped < Duration::from_secs(5), "{stopped:?}");

    let posta = builder(&world)
        .consumer(gated_consumer::<Postgres>(&gate))
        .start()
        .await
        .expect("a running service");
    until_quiet::<Postgres>(&store, EFFECTS, 40).await;
    posta.stop().await.expect("a drain");
    assert_eq!(
        rows::<Postgres>(&store, "dispatched", "attempts = 0").await,
        40
    );
    assert!(dead_letters_of::<Postgres>(&store).await.is_empty());
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(1, 40)), Verdict::default());
}

/// F24: the alarm ends while everything runs.
#[actix_rt::test]
async fn an_alarm_that_ends_lets_everything_out_in_order() {
    let world = World::<Sqlite>::alone().await;
    let (store, vhost) = (world.store(), world.vhost());
    let posta = builder(&world)
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 4, 0..1, |_, _| Fate::Succeed).await;
    until_quiet::<Sqlite>(&store, EFFECTS, 4).await;
    let alarm = vhost.block().await;
    enqueue(&posta, 4, 1..6, |_, _| Fate::Succeed).await;
    until("the dispatchers wait", async || {
        !posta.registry().is_healthy()
    })
    .await;
    drop(alarm);
    let began = Instant::now();
    until_quiet::<Sqlite>(&store, EFFECTS, 24).await;
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    until("all is well", async || posta.registry().is_healthy()).await;
    posta.stop().await.expect("a drain");
    assert_eq!(
        rows::<Sqlite>(&store, "dispatched", "attempts > 0").await,
        0
    );
    let effects = effects_of::<Sqlite>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(4, 6)), Verdict::default());
}

/// F25: the broker closes the channel of a handler that takes too long. Its commit stands, the copy
/// is refused, and the other partition does not notice.
#[actix_rt::test]
async fn a_handler_that_outlives_its_channel_has_its_effect_once() {
    let world = World::<Postgres>::alone().await;
    let (store, vhost) = (world.store(), world.vhost());
    let _timeout = vhost.set("consumer_timeout", "1000").await;
    let _tick = vhost.set("channel_tick_interval", "200").await;
    let gate = Gate::closed();
    let posta = builder(&world)
        .consumer(gated_consumer::<Postgres>(&gate).partitions(2))
        .start()
        .await
        .expect("a running service");
    let key_in = |partition| {
        (0..)
            .find(|key| partition_of(*key, 2) == partition)
            .expect("a key")
    };
    let (slow, busy) = (key_in(0), key_in(1));
    let mut message = super::numbered(slow, 0);
    message.fate = Fate::Wait;
    send(&posta, vec![Envelope::of(&message).expect("an envelope")]).await;
    gate.until_arrived(1).await;
    let queue = format!("{EFFECTS}.1.0");
    // It was delivered, and is ready again: the channel is gone, and the handler does not know.
    vhost
        .queue_until(&queue, |queue| {
            queue["message_stats"]["deliver"] == 1
                && queue["messages_ready"] == 1
                && queue["consumers"] == 0
        })
        .await;
    send(
        &posta,
        (0..20).map(|number| envelope(busy, number)).collect(),
    )
    .await;
    until("the other partition is through", async || {
        effects_of::<Postgres>(&store, EFFECTS).await.len() == 20
    })
    .await;
    gate.open();
    until("the copy is refused", async || {
        posta.status().await.expect("a status").counts.duplicates == 1
    })
    .await;
    until_quiet::<Postgres>(&store, EFFECTS, 21).await;
    vhost
        .queue_until(&queue, |queue| {
            queue["consumers"] == 1 && queue["messages"] == 0
        })
        .await;
    assert_ne!(last_error_of(&posta, "effects 0"), "");
    assert_eq!(last_error_of(&posta, "effects 1"), "");
    assert!(posta.registry().is_healthy());
    posta.stop().await.expect("a drain");
    assert_eq!(gate.arrived(), 1);
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    let expected = [(slow, 1), (busy, 20)].map(|(key, count)| (format!("k{key}"), count));
    assert_eq!(judge(&effects, &expected.into()), Verdict::default());
}

/// F26: a queue is there already with other arguments. Its consumer says so and waits; others work;
/// nothing is deleted; and when an operator has removed it, work begins.
#[actix_rt::test]
async fn a_queue_with_other_arguments_stops_its_own_consumer_only() {
    let world = World::<Sqlite>::fresh(BrokerKind::RabbitMq).await;
    let (store, vhost) = (world.store(), world.vhost());
    let queue = format!("{EFFECTS}.1.{}", partition_of(0, 4));
    vhost.make_queue(&queue, &json!({}));
    let posta = builder(&world)
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .consumer(echoes_consumer::<Sqlite>())
        .start()
        .await
        .expect("a running service");
    let echo = |number| {
        let key = "k0".to_owned();
        Envelope::of(&Echo { key, number }).expect("an envelope")
    };
    send(&posta, (0..5).map(echo).collect()).await;
    until("the other consumer works", async || {
        effects_of::<Sqlite>(&store, ECHOES).await.len() == 5
    })
    .await;
    for child in partitions_of(EFFECTS, 4) {
        until("the consumer says what is wrong", async || {
            let told = state_of(&posta, &child);
            [
                &queue,
                "inequivalent arg",
                "x-dead-letter-exchange",
                "posta.dead",
                "none",
            ]
            .iter()
            .all(|part| told.contains(*part))
        })
        .await;
    }
    for child in partitions_of(ECHOES, 2) {
        assert_eq!(last_error_of(&posta, &child), "");
    }
    // What is in it stays in it.
    assert!(vhost.bind(&queue, "kept"));
    vhost.publish("kept", &json!({}), "kept");
    send(&posta, vec![envelope(0, 0)]).await;
    until("its message waits and says why", async || {
        rows::<Sqlite>(&store, "outbox", "last_error LIKE 'unroutable%'").await == 1
    })
    .await;
    let shown = vhost
        .queue_until(&queue, |queue| {
            queue["messages"] == 1 && queue["consumers"] == 0
        })
        .await;
    assert_eq!(shown["type"], "classic");

    assert_eq!(vhost.get(&queue)["payload"], "kept");
    vhost.delete_queue(&queue);
    until_quiet::<Sqlite>(&store, EFFECTS, 1).await;
    until("all is well", async || posta.registry().is_healthy()).await;
    posta.stop().await.expect("a drain");
}

/// A client in C (librabbitmq's command line tools) publishes a message, twice, and reads what
/// Posta publishes.
#[actix_rt::test]
async fn a_foreign_client_publishes_what_is_handled_once_and_reads_what_is_published() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let (store, vhost) = (world.store(), world.vhost());
    let posta = builder(&world)
        .consumer(effects_consumer::<Postgres>(&Calls::default()))
        .consumer(echoes_consumer::<Postgres>())
        .start()
        .await
        .expect("a running service");
    vhost.tap("read", "test.echo.*").await;
    let queue = format!("{EFFECTS}.1.{}", partition_of(0, 4));
    vhost
        .queue_until(&queue, |queue| queue["consumers"] == 1)
        .await;

    // It can set no message id and no type, but headers: so it speaks CloudEvents.
    let id = MessageId::new().to_string();
    let key = format!("test.numbered.{}", envelope(0, 0).slot().number());
    let body = r#"{"number":0,"fate":"Echo","key":"k0","more":null}"#;
    for _ in 0..2 {
        let mut publish = Command::new("amqp-publish");
        publish.args([
            "--url",
            &vhost.url(),
            "--exchange",
            "posta",
            "--routing-key",
            &key,
        ]);
        publish.args([
            "--persistent",
            "--content-type",
            "application/json",
            "--body",
            body,
        ]);
        for (name, value) in [
            ("specversion", "1.0"),
            ("id", &id),
            ("source", "/a/shop"),
            ("type", "test.numbered"),
            ("partitionkey", "k0"),
        ] {
            publish.arg(format!("--header=cloudEvents_{name}:{value}"));
        }
        output(publish);
    }
    until_quiet::<Postgres>(&store, EFFECTS, 1).await;
    until("the copy is refused", async || {
        posta.status().await.expect("a status").counts.duplicates == 1
    })
    .await;
    until_quiet::<Postgres>(&store, ECHOES, 1).await;
    // The same by another client, the management API, as properties.
    let number = 1;
    let properties = json!({
        "message_id": MessageId::new().to_string(),
        "type": "test.numbered",
        "headers": {"posta-key": "k0"},
    });
    let mut message = super::numbered(0, number);
    message.fate = Fate::Echo;
    vhost.publish(
        &key,
        &properties,
        &serde_json::to_string(&message).expect("JSON"),
    );
    until_quiet::<Postgres>(&store, EFFECTS, 2).await;
    until_quiet::<Postgres>(&store, ECHOES, 2).await;
    posta.stop().await.expect("a drain");

    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    assert_eq!(effects[0].message_id, id);
    assert_eq!(judge(&effects, &expected(1, 2)), Verdict::default());
    // What a handler enqueued: the C client reads the body, the management API all properties.
    let echoes = effects_of::<Postgres>(&store, ECHOES).await;
    let mut get = Command::new("amqp-get");
    get.args(["--url", &vhost.url(), "--queue", "read"]);
    assert_eq!(output(get), br#"{"key":"k0","number":0}"#);
    let read = vhost.get("read");
    assert_eq!(read["payload"], r#"{"key":"k0","number":1}"#);
    assert_eq!(
        read["routing_key"],
        format!("test.echo.{}", envelope(0, 0).slot().number())
    );
    let cause = &effects[1].message_id;
    let mut properties = read["properties"].clone();
    let timestamp = properties
        .as_object_mut()
        .and_then(|all| all.remove("timestamp"));
    let now = time::OffsetDateTime::now_utc().unix_timestamp();
    let age = now
        - timestamp
            .and_then(|seconds| seconds.as_i64())
            .expect("seconds");
    assert!((-5..300).contains(&age), "{age} s ago");
    assert_eq!(
        properties,
        json!({
            "message_id": echoes[1].message_id,
            "type": "test.echo",
            "content_type": "application/json",
            "delivery_mode": 2,
            "correlation_id": cause,
            "headers": {"posta-version": 1, "posta-key": "k0", "causation-id": cause},
        })
    );
}

fn output(mut command: Command) -> Vec<u8> {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}; tests/run installs it"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    output.stdout
}
