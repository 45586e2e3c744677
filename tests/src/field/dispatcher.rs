//! F01 to F09: the dispatcher, in a running actor system.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use posta::broker::rabbitmq::RabbitMqOptions;
use posta::lease::Resource;
use posta::store::Store;
use posta::{Broker, Envelope, Outbox, Posta, Postgres, Sqlite};

use super::{builder_on, envelope, numbered, owners, partitions_of, send, state_of};
use crate::harness::postgres;
use crate::harness::proxy::{Proxy, Traffic};
use crate::world::effects::{Verdict, count, dead_letters_of, effects_of, judge, rows, table};
use crate::world::gate::Gate;
use crate::world::service::{
    Calls, ECHOES, EFFECTS, Echo, Fate, builder, effects_consumer, effects_service, enqueue,
    expected, gated_consumer, quick, until_quiet, whole_consumer,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    messages_of_a_key_leave_in_the_order_of_enqueueing_whatever_their_ids,
    a_row_that_is_no_message_fails_alone,
    a_head_that_no_queue_takes_holds_its_own_key_only,
);

/// F01: a transaction that takes its row's number early and commits late.
#[actix_rt::test]
async fn a_row_that_commits_late_is_dispatched_late_and_not_skipped() {
    let world = World::<Postgres>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let posta = builder(&world)
        .consumer(effects_consumer::<Postgres>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let outbox = Outbox::<Postgres>::new(world.tables.clone());
    let mut late = store.begin().await.expect("a transaction");
    outbox
        .enqueue(&mut late, &numbered(0, 0))
        .await
        .expect("a row");
    send(&posta, vec![envelope(1, 0)]).await;
    until_quiet::<Postgres>(&store, EFFECTS, 1).await;
    late.commit().await.expect("a commit");
    until_quiet::<Postgres>(&store, EFFECTS, 2).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    let keys: Vec<&str> = effects.iter().map(|effect| effect.key.as_str()).collect();
    assert_eq!(keys, ["k1", "k0"]);
}

/// F02: one transaction, one key, ids that fall.
async fn messages_of_a_key_leave_in_the_order_of_enqueueing_whatever_their_ids<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    let mut envelopes: Vec<Envelope> = (0..50).map(|number| envelope(0, number)).collect();
    let mut ids: Vec<_> = envelopes.iter().map(|envelope| envelope.id).collect();
    ids.sort_by_key(|id| std::cmp::Reverse(id.to_string()));
    for (envelope, id) in envelopes.iter_mut().zip(ids) {
        envelope.id = id;
    }
    send(&posta, envelopes).await;
    until_quiet::<D>(&store, EFFECTS, 50).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(1, 50)), Verdict::default());
}

/// F03: the broker stops reading in the middle of a publish. The application shares the pool, and
/// does not notice.
#[actix_rt::test]
async fn a_broker_that_stalls_leaves_the_application_and_its_pool_alone() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let proxy = Proxy::before(world.vhost().address()).await;
    let options = RabbitMqOptions::from_url(&proxy.url(&world.broker_url))
        .expect("a valid URL")
        .publish_timeout(Duration::from_secs(6));
    let posta = builder_on(&world, options)
        // The smallest pool that is allowed, for actors and application together.
        .connections_max(4)
        .dispatch_batch(5)
        .arbiters(1)
        .consumer(effects_consumer::<Postgres>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 1, 0..1, |_, _| Fate::Succeed).await;
    until_quiet::<Postgres>(&store, EFFECTS, 1).await;

    proxy.set(Traffic::Hold);
    enqueue(&posta, 10, 1..2, |_, _| Fate::Succeed).await;
    let idle = "SELECT count(*) FROM pg_stat_activity \
                WHERE datname = current_database() AND state LIKE 'idle in transaction%' \
                  AND now() - state_change > interval '1 second'";
    let mut connection = postgres::connect_to(&world.database_url).await;
    // From the moment in which the publish begins until it is given up.
    while !state_of(&posta, "dispatcher 0").contains("6s") {
        let began = Instant::now();
        posta
            .transaction(async |tx| {
                Postgres::run(tx, "INSERT INTO state (key, number) VALUES ('app', 0)").await?;
                Ok::<_, anyhow::Error>(())
            })
            .await
            .expect("the application goes on");
        assert!(began.elapsed() < Duration::from_secs(3));
        assert_eq!(postgres::number(&mut connection, idle).await, 0);
    }
    assert_eq!(rows::<Postgres>(&store, "outbox", "attempts = 0").await, 10);
    proxy.set(Traffic::Pass);
    until_quiet::<Postgres>(&store, EFFECTS, 11).await;
    posta.stop().await.expect("a drain");
    assert_eq!(
        rows::<Postgres>(&store, "dispatched", "attempts > 0").await,
        0
    );
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    let of_k0 = effects.iter().filter(|effect| effect.key == "k0").count();
    assert_eq!((effects.len(), of_k0), (11, 2));
}

/// F04: the broker refuses every connection. Nobody's attempt, few tries, and all in order when it
/// is back.
#[actix_rt::test]
async fn an_outage_of_the_broker_is_no_attempt_and_no_spinning() {
    let world = World::<Sqlite>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    // The queues are there; nobody reads them.
    let before = builder(&world)
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    enqueue(&before, 1, 0..1, |_, _| Fate::Succeed).await;
    until_quiet::<Sqlite>(&store, EFFECTS, 1).await;
    before.stop().await.expect("a drain");

    let proxy = Proxy::before(world.vhost().address()).await;
    proxy.set(Traffic::Cut);
    let broker = Broker::from_url(&proxy.url(&world.broker_url)).expect("a valid URL");
    let posta = quick(Posta::<Sqlite>::builder(&world.database_url, broker))
        .arbiters(1)
        .start()
        .await
        .expect("a running service");
    // Each is a nudge, too, and no nudge shortens the wait for the broker.
    enqueue(&posta, 1, 1..11, |_, _| Fate::Succeed).await;
    let accepted = proxy.accepted();
    let mut first = accepted.clone();
    first.wait_for(|tries| *tries > 0).await.expect("a try");
    let window = Duration::from_secs(10);
    actix_rt::time::sleep(window).await;
    let tries = *accepted.borrow();
    assert!((3..=15).contains(&tries), "{tries} tries in {window:?}");
    assert!(state_of(&posta, "dispatcher 0").contains("could not connect"));
    assert_eq!(rows::<Sqlite>(&store, "outbox", "attempts = 0").await, 10);

    proxy.set(Traffic::Pass);
    until("all are dispatched", async || {
        rows::<Sqlite>(&store, "dispatched", "attempts = 0").await == 11
    })
    .await;
    until("all is well", async || posta.registry().is_healthy()).await;
    posta.stop().await.expect("a drain");
    assert!(dead_letters_of::<Sqlite>(&store).await.is_empty());
    let after = builder(&world)
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    until_quiet::<Sqlite>(&store, EFFECTS, 11).await;
    after.stop().await.expect("a drain");
    let effects = effects_of::<Sqlite>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(1, 11)), Verdict::default());
}

/// F04: the database refuses every connection, in the middle of a handler and with rows in the
/// outbox. Nobody's attempt, few tries, and all in order when it is back.
#[actix_rt::test]
async fn an_outage_of_the_database_is_no_attempt_and_no_spinning() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let proxy = Proxy::before(postgres::address()).await;
    let gate = Gate::closed();
    let posta = quick(Posta::<Postgres>::builder(
        &proxy.url(&world.database_url),
        world.broker(),
    ))
    .tables(world.tables.clone())
    .connect_timeout(Duration::from_secs(2))
    .arbiters(1)
    .consumer(gated_consumer::<Postgres>(&gate))
    .start()
    .await
    .expect("a running service");
    enqueue(&posta, 1, 0..5, |_, _| Fate::Wait).await;
    gate.until_arrived(1).await;
    until("all are at the broker", async || {
        rows::<Postgres>(&store, "dispatched", "true").await == 5
    })
    .await;

    proxy.set(Traffic::Cut);
    gate.open();
    // What others enqueue past the outage waits for it to end.
    let outbox = Outbox::<Postgres>::new(world.tables.clone());
    let mut session = store.begin().await.expect("a transaction");
    for number in 5..15 {
        outbox
            .enqueue(&mut session, &numbered(0, number))
            .await
            .expect("a row");
    }
    session.commit().await.expect("a commit");
    until("the actors have noticed", async || {
        let noticed = |name: &str| state_of(&posta, name).contains("database is unavailable");
        noticed("dispatcher 0") && partitions_of(EFFECTS, 4).iter().any(|name| noticed(name))
    })
    .await;
    let accepted = proxy.accepted();
    let (before, window) = (*accepted.borrow(), Duration::from_secs(10));
    actix_rt::time::sleep(window).await;
    let tries = *accepted.borrow() - before;
    // A dispatcher, a partition, two lease keepers, the relay: fifteen tries each.
    assert!(tries <= 5 * 15, "{tries} tries in {window:?}");

    proxy.set(Traffic::Pass);
    until_quiet::<Postgres>(&store, EFFECTS, 15).await;
    until("all is well", async || posta.registry().is_healthy()).await;
    let counts = posta.status().await.expect("a status").counts;
    posta.stop().await.expect("a drain");
    assert_eq!(
        (counts.held, counts.dead_letters, counts.dispatch_failures),
        (0, 0, 0)
    );
    assert_eq!(
        rows::<Postgres>(&store, "dispatched", "attempts > 0").await,
        0
    );
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(1, 15)), Verdict::default());
}

/// F05: a type that no Rust code knows is carried as bytes; a row that is no message becomes a dead
/// letter, alone; and the loop goes on.
async fn a_row_that_is_no_message_fails_alone<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    if broker == BrokerKind::RabbitMq {
        world.vhost().tap("gone", "gone.Type.*").await;
    }
    let outbox = table::<D>(&store, "outbox");
    let insert = |message_type: &str, payload: &str| {
        let payload = match D::KIND {
            "sqlite" => format!("x'{payload}'"),
            _ => format!("'\\x{payload}'::bytea"),
        };
        format!("INSERT INTO {outbox} (message_type, payload) VALUES ('{message_type}', {payload})")
    };
    let around: [Envelope; 2] = [envelope(0, 0), envelope(0, 1)];
    let [first, last] = around;
    posta
        .transaction(async |tx| {
            let rows = Outbox::<D>::new(world.tables.clone());
            rows.enqueue_envelopes(tx, &[first]).await?;
            D::run(tx, &insert("gone.Type", "00ff7b")).await?;
            D::run(tx, &insert("no type", "00ff7c")).await?;
            rows.enqueue_envelopes(tx, &[last]).await?;
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction");
    posta.nudge();
    until("the messages around are handled", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 2
    })
    .await;
    until("the row that is no message is set aside", async || {
        dead_letters_of::<D>(&store).await.len() == 1
    })
    .await;
    match broker {
        BrokerKind::RabbitMq => {
            until_quiet::<D>(&store, EFFECTS, 2).await;
            let got = world.vhost().get("gone");
            assert_eq!(got["payload"], "AP97", "{got}");
            assert_eq!(got["properties"]["type"], "gone.Type");
        }
        // Nobody takes it, and nobody else but this database could: it waits, and says why.
        BrokerKind::Database => {
            until("the unknown type is held", async || {
                let why = "message_type = 'gone.Type' AND last_error LIKE 'unroutable%'";
                rows::<D>(&store, "outbox", why).await == 1
            })
            .await;
        }
    }
    posta.stop().await.expect("a drain");
    let letters = dead_letters_of::<D>(&store).await;
    assert_eq!(letters[0].consumer, None);
    assert_eq!(letters[0].message_type.as_deref(), Some("no type"));
    assert_eq!(letters[0].reason, "malformed");
    assert!(
        letters[0].error.contains("message type"),
        "{}",
        letters[0].error
    );
    assert_eq!(letters[0].payload, [0x00, 0xff, 0x7c]);

    // An empty type does not even get in.
    let mut session = store.begin().await.expect("a transaction");
    let refused = D::run(&mut session, &insert("", "00")).await;
    let refused = refused.expect_err("an empty type").to_string();
    assert!(refused.contains("outbox_message_type_size"), "{refused}");
    session.rollback().await;
}

/// F06: rows that cannot leave are more than a batch holds, and all older than one that can.
#[actix_rt::test]
async fn rows_that_cannot_leave_do_not_fill_the_batch() {
    let world = World::<Sqlite>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let posta = builder(&world)
        .dispatch_batch(50)
        .arbiters(1)
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let stuck = (0..60).map(|number| {
        Envelope::of(&Echo {
            key: format!("stuck {number}"),
            number,
        })
        .expect("an envelope")
    });
    send(&posta, stuck.collect()).await;
    until("all that nobody takes are held", async || {
        rows::<Sqlite>(&store, "outbox", "held_until IS NOT NULL").await == 60
    })
    .await;
    enqueue(&posta, 1, 0..1, |_, _| Fate::Succeed).await;
    until("the fresh one is through", async || {
        effects_of::<Sqlite>(&store, EFFECTS).await.len() == 1
    })
    .await;
    assert_eq!(rows::<Sqlite>(&store, "outbox", "attempts > 0").await, 60);
    posta.stop().await.expect("a drain");
}

/// F07: the head of a key finds no queue. Its successors wait behind it, another key does not; when
/// somebody takes it, all leave in order, and so does what comes after.
async fn a_head_that_no_queue_takes_holds_its_own_key_only<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    // Nobody takes echoes yet.
    let head = Envelope::of(&Echo {
        key: "k0".to_owned(),
        number: 0,
    });
    let key_0 = [head.expect("an envelope"), envelope(0, 0), envelope(0, 1)];
    send(&posta, [&key_0[..], &[envelope(1, 0)]].concat()).await;
    until("the other key is through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 1
    })
    .await;
    // Tried again and again, and never overtaken.
    until("the head was tried three times", async || {
        rows::<D>(&store, "outbox", "attempts >= 3").await == 1
    })
    .await;
    assert_eq!(rows::<D>(&store, "outbox", "attempts = 0").await, 2);
    assert_eq!(effects_of::<D>(&store, EFFECTS).await[0].key, "k1");
    posta.stop().await.expect("a drain");

    let posta = builder(&world)
        .consumer(whole_consumer::<D>(&Gate::default()))
        .start()
        .await
        .expect("a running service");
    send(&posta, vec![envelope(0, 2)]).await;
    until_quiet::<D>(&store, EFFECTS, 4).await;
    until_quiet::<D>(&store, ECHOES, 1).await;
    posta.stop().await.expect("a drain");
    let mut of_key = expected(1, 3);
    of_key.extend([("k1".to_owned(), 1)]);
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &of_key), Verdict::default());
    // One queue brought them in the order of enqueueing.
    let before_the_head = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM effect WHERE key = 'k0' \
                           AND position < (SELECT position FROM effect WHERE consumer = 'echoes')";
    assert_eq!(count::<D>(&store, before_the_head).await, 0);
}

/// F08: a dispatcher is cut off from its database after it has published, loses its lanes, and
/// comes back with the broker's confirms. The new owner's word stands.
#[actix_rt::test]
async fn a_dispatcher_that_comes_back_late_settles_nothing() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let database = Proxy::before(postgres::address()).await;
    let broker = Proxy::before(world.vhost().address()).await;
    let options = RabbitMqOptions::from_url(&broker.url(&world.broker_url))
        .expect("a valid URL")
        .publish_timeout(Duration::from_secs(120))
        .heartbeat(Duration::from_secs(60));
    let late = quick(Posta::<Postgres>::builder(
        &database.url(&world.database_url),
        Broker::rabbitmq(options),
    ))
    .tables(world.tables.clone())
    .connect_timeout(Duration::from_secs(2))
    // Its one publisher has its channel before the answers are held.
    .arbiters(1)
    .consumer(effects_consumer::<Postgres>(&Calls::default()))
    .start()
    .await
    .expect("a running service");
    world.vhost().tap("copies", "#").await;
    enqueue(&late, 1, 0..1, |_, _| Fate::Succeed).await;
    until_quiet::<Postgres>(&store, EFFECTS, 1).await;

    let copies = async |count: u64| {
        world
            .vhost()
            .queue_until("copies", |queue| queue["messages"].as_u64() >= Some(count))
            .await
    };
    broker.set(Traffic::HoldAnswers);
    enqueue(&late, 3, 1..2, |_, _| Fate::Succeed).await;
    copies(4).await;
    database.set(Traffic::Cut);
    let began = Instant::now();
    // Takes the lanes when their leases have expired, publishes again, and settles.
    let next = builder(&world)
        .consumer(effects_consumer::<Postgres>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    until("the new owner has settled", async || {
        rows::<Postgres>(&store, "dispatched", "true").await == 4
    })
    .await;
    // The partitions too: the late one gives its subscriptions up when its leases end, not when its
    // database says so.
    until_quiet::<Postgres>(&store, EFFECTS, 4).await;
    assert!(
        began.elapsed() < Duration::from_secs(20),
        "{:?}",
        began.elapsed()
    );
    copies(7).await;
    // So that a change of these rows would be seen.
    let at = "SELECT CAST(SUM(EXTRACT(EPOCH FROM dispatched_at) * 1000000) AS BIGINT) AS count \
              FROM {posta}dispatched";
    let settled_at = count::<Postgres>(&store, at).await;

    database.set(Traffic::Pass);
    broker.set(Traffic::Pass);
    until("the late one works again", async || {
        let shares = owners::<Postgres>(&store, &Resource::Lanes).await;
        shares.len() == 2 && late.registry().is_healthy()
    })
    .await;
    enqueue(&late, 8, 2..3, |_, _| Fate::Succeed).await;
    until_quiet::<Postgres>(&store, EFFECTS, 12).await;
    let (late_counts, next_counts) = (
        late.status().await.expect("a status").counts,
        next.status().await.expect("a status").counts,
    );
    late.stop().await.expect("a drain");
    next.stop().await.expect("a drain");
    assert_eq!(late_counts.dispatched + next_counts.dispatched, 12);
    assert_eq!(late_counts.dispatch_lost, 3);
    assert!(next_counts.dispatched >= 3);
    let first_four = format!(
        "{at} WHERE position IN (SELECT position FROM {{posta}}dispatched ORDER BY position LIMIT 4)"
    );
    assert_eq!(count::<Postgres>(&store, &first_four).await, settled_at);
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    let ids: HashSet<_> = effects.iter().map(|effect| &effect.message_id).collect();
    assert_eq!((effects.len(), ids.len()), (12, 12));
}

/// F09: two processes, every commit a nudge in one and a notification to the other, polling
/// underneath. Nothing fails, so nothing is sent twice.
#[actix_rt::test]
async fn a_thousand_commits_with_nudges_are_a_thousand_publishes() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let mut services = Vec::new();
    for _ in 0..2 {
        let service = builder(&world)
            // A lease that runs out on a busy machine would be a failure.
            .lease_ttl(Duration::from_secs(15))
            .poll_interval_max(Duration::from_millis(10))
            .consumer(effects_consumer::<Postgres>(&Calls::default()));
        services.push(service.start().await.expect("a running service"));
    }
    world.vhost().tap("copies", "#").await;
    until("they share the lanes", async || {
        owners::<Postgres>(&store, &Resource::Lanes).await == [32, 32]
    })
    .await;
    let commits = services
        .iter()
        .enumerate()
        .map(|(index, posta)| async move {
            for number in 0..500 {
                send(
                    posta,
                    vec![envelope(2 * (number as usize % 4) + index, number / 4)],
                )
                .await;
            }
        });
    futures_util::future::join_all(commits).await;
    until_quiet::<Postgres>(&store, EFFECTS, 1000).await;
    let mut dispatched = Vec::new();
    for posta in services {
        let counts = posta.status().await.expect("a status").counts;
        assert_eq!((counts.duplicates, counts.dispatch_failures), (0, 0));
        dispatched.push(counts.dispatched);
        posta.stop().await.expect("a drain");
    }
    assert_eq!(dispatched.iter().sum::<u64>(), 1000);
    assert!(dispatched.iter().all(|count| *count > 0), "{dispatched:?}");
    let copies = world
        .vhost()
        .queue_until("copies", |queue| queue["messages"].as_u64() >= Some(1000))
        .await;
    assert_eq!(copies["messages"], 1000);
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(8, 125)), Verdict::default());
}
