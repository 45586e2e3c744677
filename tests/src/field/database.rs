//! F27 to F30: the database, under a running actor system; and rows that no code of ours wrote.

use std::future::Future;
use std::task::Poll;
use std::time::{Duration, Instant};

use posta::lease::Resource;
use posta::store::Store;
use posta::{Outbox, Postgres, Sqlite};

use super::{envelope, numbered, owners, send};
use crate::harness::postgres;
use crate::world::child::{Orders, Service};
use crate::world::effects::{Verdict, count, dead_letters_of, effects_of, judge, rows, table};
use crate::world::service::{
    Calls, ECHOES, EFFECTS, Fate, Numbered, builder, echoes_consumer, effects_consumer, enqueue,
    expected, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    a_transaction_dropped_anywhere_keeps_state_and_message_together,
    rows_that_plain_sql_inserts_are_dispatched_and_handled_like_any_other,
);

/// F27: the application drops its transaction's future somewhere, as a request handler does whose
/// client goes away. State and message stay together, and the pool, which the actors share, stays
/// good.
async fn a_transaction_dropped_anywhere_keeps_state_and_message_together<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        .connections_max(4)
        .consumer(effects_consumer::<D>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    for polls in 1..=20 {
        let number = polls as i64;
        let transaction = posta.transaction(async |tx| {
            let sql = format!("INSERT INTO state (key, number) VALUES ('dropped', {number})");
            D::run(tx, &sql).await?;
            tx.enqueue(&numbered(0, number))?;
            Ok::<_, anyhow::Error>(())
        });
        dropped_after(polls, transaction).await;
    }
    enqueue(&posta, 2, 0..1, |_, _| Fate::Succeed).await;
    let dropped = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM state WHERE key = 'dropped'";
    let dropped = count::<D>(&store, dropped).await as usize;
    until_quiet::<D>(&store, EFFECTS, dropped + 2).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(effects.len(), dropped + 2);
    let without_message = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM state s \
                           WHERE s.key = 'dropped' AND NOT EXISTS (SELECT 1 FROM effect e WHERE e.number = s.number)";
    assert_eq!(count::<D>(&store, without_message).await, 0);
}

/// Polls a future so many times, unless it ends before, and drops it.
async fn dropped_after(polls: usize, future: impl Future) {
    let mut future = std::pin::pin!(future);
    let mut left = polls;
    std::future::poll_fn(|context| {
        left -= 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(()),
            Poll::Pending if left == 0 => Poll::Ready(()),
            Poll::Pending => Poll::Pending,
        }
    })
    .await;
}

/// F28: two processes that dispatch, consume and enqueue on one file. Nobody sees a lock.
#[actix_rt::test]
async fn processes_that_write_to_one_file_wait_for_each_other_and_fail_at_nothing() {
    let world = World::<Sqlite>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let posta = builder(&world)
        .lease_ttl(Duration::from_secs(5))
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .consumer(echoes_consumer::<Sqlite>())
        .start()
        .await
        .expect("a running service");
    // Five keys of its own, each message with an echo.
    let other = Service::start(
        &world,
        &Orders {
            crash_at: None,
            enqueue: Some((5, 0, 25)),
            ..Orders::default()
        },
    );
    let producers = (0..2).map(|producer| {
        let posta = &posta;
        async move {
            for number in 0..25 {
                let keys = (0..5).map(|key| envelope(10 + 5 * producer + key, number));
                send(posta, keys.collect()).await;
            }
        }
    });
    futures_util::future::join_all(producers).await;
    until_quiet::<Sqlite>(&store, EFFECTS, 375).await;
    until_quiet::<Sqlite>(&store, ECHOES, 125).await;
    let children = posta.registry().children();
    let counts = posta.status().await.expect("a status").counts;
    posta.stop().await.expect("a drain");
    other.stop().await;
    for (name, status) in children {
        assert!(status.last_error.is_none(), "{name}: {status:?}");
        assert_eq!(status.restarts, 0, "{name}");
    }
    assert_eq!((counts.held, counts.dispatch_failures), (0, 0));
    assert_eq!(
        rows::<Sqlite>(&store, "dispatched", "attempts = 0").await,
        500
    );
    assert!(dead_letters_of::<Sqlite>(&store).await.is_empty());
    let mut of_keys = expected(5, 25);
    of_keys.extend((10..20).map(|key| (format!("k{key}"), 25)));
    let effects = effects_of::<Sqlite>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &of_keys), Verdict::default());
}

/// F29: the database's default isolation would make every second transaction fail.
#[actix_rt::test]
async fn a_database_that_is_serializable_by_default_disturbs_nobody() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let (_, name) = world.database_url.rsplit_once('/').expect("a database");
    let sql = format!("ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'");
    postgres::run(&world.database_url, &sql).await;
    let store = world.store();
    let mut services = Vec::new();
    for _ in 0..2 {
        let service = builder(&world)
            .arbiters(2)
            .lease_ttl(Duration::from_secs(10))
            .consumer(effects_consumer::<Postgres>(&Calls::default()));
        services.push(service.start().await.expect("a running service"));
    }
    enqueue(&services[0], 8, 0..13, |_, _| Fate::Succeed).await;
    // The application's own transactions are serializable, too.
    let mut connection = postgres::connect_to(&world.database_url).await;
    let outbox = Outbox::<Postgres>::new(world.tables.clone());
    let isolation = "SELECT count(*) FROM state \
                     WHERE current_setting('transaction_isolation') = 'serializable'";
    for number in 13..25 {
        assert_ne!(postgres::number(&mut connection, isolation).await, 0);
        let keys: Vec<Numbered> = (0..8).map(|key| numbered(key, number)).collect();
        outbox
            .enqueue_all(&mut connection, &keys)
            .await
            .expect("rows");
    }
    until_quiet::<Postgres>(&store, EFFECTS, 200).await;
    for posta in services {
        let counts = posta.status().await.expect("a status").counts;
        assert_eq!((counts.held, counts.dispatch_failures), (0, 0));
        for (name, status) in posta.registry().children() {
            assert!(status.last_error.is_none(), "{name}: {status:?}");
        }
        posta.stop().await.expect("a drain");
    }
    assert_eq!(
        rows::<Postgres>(&store, "dispatched", "attempts > 0").await,
        0
    );
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(8, 25)), Verdict::default());
}

/// F30: a large message commits; the sessions that listen are killed; nothing waits longer than for
/// a poll, and listening goes on.
#[actix_rt::test]
async fn killed_listeners_listen_again_and_polling_bridges_the_gap() {
    let world = World::<Postgres>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let poll = Duration::from_secs(20);
    let mut services = Vec::new();
    for _ in 0..2 {
        let service = builder(&world)
            .poll_interval_max(poll)
            .consumer(effects_consumer::<Postgres>(&Calls::default()));
        services.push(service.start().await.expect("a running service"));
    }
    until("they share the lanes", async || {
        owners::<Postgres>(&store, &Resource::Lanes).await == [32, 32]
    })
    .await;
    let mut outside = postgres::connect_to(&world.database_url).await;
    let listening = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND query LIKE 'LISTEN %'";
    until("both listen", async || {
        postgres::number(&mut outside, listening).await == 2
    })
    .await;
    // Sixteen lanes or so, some of them the other process's.
    let one_round = async |number: i64| {
        let began = Instant::now();
        enqueue(&services[0], 16, number..number + 1, |_, _| Fate::Succeed).await;
        until_quiet::<Postgres>(&store, EFFECTS, 16 * (number as usize + 1)).await;
        began.elapsed()
    };
    let kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                WHERE datname = current_database() AND query LIKE 'LISTEN %'";
    assert_eq!(postgres::number(&mut outside, kill).await, 2);
    let took = one_round(0).await;
    assert!(took < poll, "{took:?}");
    until("both listen again", async || {
        postgres::number(&mut outside, listening).await == 2
    })
    .await;
    // Long enough for the polls to be far between.
    actix_rt::time::sleep(Duration::from_secs(14)).await;
    let took = one_round(1).await;
    assert!(took < Duration::from_secs(5), "{took:?}");

    let large = Numbered {
        key: "k".repeat(255),
        ..numbered(0, 0)
    };
    let mut large = posta::Envelope::of(&large).expect("an envelope");
    large.payload = format!(
        "{{\"key\":\"k16\",\"number\":0,\"fate\":\"Succeed\",\"more\":{:?}}}",
        "x".repeat(20_000)
    )
    .into();
    send(&services[0], vec![large]).await;
    until_quiet::<Postgres>(&store, EFFECTS, 33).await;
    for posta in services {
        assert!(posta.status().await.expect("a status").counts.dispatched > 0);
        posta.stop().await.expect("a drain");
    }
}

/// A service in another language, or a script: a type and a payload are enough; a key makes an
/// order.
async fn rows_that_plain_sql_inserts_are_dispatched_and_handled_like_any_other<D: TestDatabase>(
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
    let outbox = table::<D>(&store, "outbox");
    let payload = |message: &Numbered| {
        let json = serde_json::to_string(message).expect("JSON");
        match D::KIND {
            "sqlite" => format!("CAST('{json}' AS BLOB)"),
            _ => format!("convert_to('{json}', 'UTF8')"),
        }
    };
    let mut sql = format!(
        "INSERT INTO {outbox} (message_type, payload) VALUES ('test.numbered', {});",
        payload(&Numbered {
            fate: Fate::Echo,
            ..numbered(0, 0)
        })
    );
    for number in 0..10 {
        sql.push_str(&format!(
            "INSERT INTO {outbox} (message_type, ordering_key, payload) VALUES ('test.numbered', 'k1', {});",
            payload(&numbered(1, number))
        ));
    }
    // No nudge, no notification: polling finds them.
    let mut session = store.begin().await.expect("a transaction");
    D::run(&mut session, &sql).await.expect("plain SQL");
    session.commit().await.expect("a commit");
    until_quiet::<D>(&store, EFFECTS, 11).await;
    until_quiet::<D>(&store, ECHOES, 1).await;
    posta.stop().await.expect("a drain");
    let mut of_keys = expected(1, 1);
    of_keys.extend([("k1".to_owned(), 10)]);
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &of_keys), Verdict::default());
    let inbox = "SELECT CAST(COUNT(DISTINCT message_id) AS BIGINT) AS count FROM {posta}inbox";
    assert_eq!(count::<D>(&store, inbox).await, 12);
}
