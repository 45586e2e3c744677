use std::time::Duration;

use posta::store::Due;
use posta::{Posta, Postgres, Sqlite};
use time::OffsetDateTime;

use super::{NEVER, database_now, envelope, micros, numbered, schedule, scheduled};
use crate::harness::postgres;
use crate::world::effects::{count, effects_of};
use crate::world::service::{
    Calls, EFFECTS, builder, effects_consumer, effects_service, quick, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    a_message_is_sent_when_it_is_due_and_not_before,
    what_is_scheduled_survives_a_restart,
);

/// After a delay, at a time, at a time that has passed; and what is due much later stays.
async fn a_message_is_sent_when_it_is_due_and_not_before<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        // Polling alone would be late.
        .poll_interval_max(Duration::from_secs(60))
        .consumer(effects_consumer::<D>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let now = database_now::<D>(&store).await;
    let long_ago = OffsetDateTime::UNIX_EPOCH - Duration::from_secs(1);
    let began = std::time::Instant::now();
    posta
        .transaction(async |tx| {
            tx.enqueue_after(&numbered(0, 0), Duration::from_millis(700))?;
            tx.enqueue_at(&numbered(1, 0), now + Duration::from_millis(1200))?;
            tx.enqueue_at(&numbered(2, 0), now - Duration::from_secs(5))?;
            tx.enqueue_at(&numbered(3, 0), long_ago)?;
            tx.enqueue_after(&numbered(4, 0), Duration::ZERO)?;
            tx.enqueue_after(&numbered(5, 0), NEVER)?;
            // What is due when, beside it.
            tx.enqueue(&numbered(6, 0))?;
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction");
    let due_at = format!(
        "SELECT {} AS count FROM {{posta}}scheduled",
        micros::<D>("due_at")
    );
    let due_of = |key: usize| format!("{due_at} WHERE ordering_key = 'k{key}'");
    let (after, at) = (
        count::<D>(&store, &due_of(0)).await,
        count::<D>(&store, &due_of(1)).await,
    );
    assert_eq!(
        i128::from(at) * 1000,
        (now + Duration::from_millis(1200)).unix_timestamp_nanos() / 1000 * 1000
    );
    until_quiet::<D>(&store, EFFECTS, 6).await;
    assert!(began.elapsed() < Duration::from_secs(20));
    posta.stop().await.expect("a drain");
    assert_eq!(scheduled::<D>(&store).await, 1);
    for (key, due) in [(0, after), (1, at)] {
        let enqueued_at = micros::<D>("enqueued_at");
        let of_key = format!("FROM {{posta}}dispatched WHERE ordering_key = 'k{key}'");
        let moved = count::<D>(&store, &format!("SELECT {enqueued_at} AS count {of_key}")).await;
        // SQLite's clock tells milliseconds.
        assert!(moved >= due - 1000, "k{key}: moved {moved}, due {due}");
        assert!(moved <= due + 5_000_000, "k{key}: moved {moved}, due {due}");
    }
}

/// One process schedules and goes; another, later, sends.
async fn what_is_scheduled_survives_a_restart<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world).start().await.expect("a running service");
    for number in 0..3 {
        let delay = Duration::from_millis(1500 + 10 * number);
        schedule(&posta, envelope(0, number as i64), Due::After(delay)).await;
    }
    posta.stop().await.expect("a drain");
    assert_eq!(scheduled::<D>(&store).await, 3);
    let posta = effects_service(&world).await;
    until_quiet::<D>(&store, EFFECTS, 3).await;
    assert_eq!(posta.status().await.expect("a status").scheduled, 0);
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    let numbers: Vec<i64> = effects.iter().map(|effect| effect.number).collect();
    assert_eq!(numbers, [0, 1, 2]);
}

/// The database's clock runs half an hour ahead of the process's, or behind it: what is due is what
/// the database says.
#[actix_rt::test]
async fn what_is_due_is_told_by_the_databases_clock_alone() {
    for ahead in [true, false] {
        let world = World::<Postgres>::fresh(BrokerKind::Database).await;
        let store = world.store();
        skew_clock(&world.database_url, ahead).await;
        let posta = quick(Posta::<Postgres>::builder(
            &world.database_url,
            world.broker(),
        ))
        .tables(world.tables.clone())
        .consumer(effects_consumer::<Postgres>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
        let (now, minute) = (OffsetDateTime::now_utc(), Duration::from_secs(60));
        let at = |minutes: u32| match ahead {
            true => now + minute * minutes,
            false => now - minute * (60 - minutes),
        };
        // Before and after the database's time, and both on the same side of the process's.
        schedule(&posta, envelope(0, 0), Due::At(at(20))).await;
        schedule(&posta, envelope(1, 0), Due::At(at(40))).await;
        schedule(
            &posta,
            envelope(2, 0),
            Due::After(Duration::from_millis(50)),
        )
        .await;
        schedule(&posta, envelope(3, 0), Due::After(minute)).await;
        until("what is due is handled", async || {
            effects_of::<Postgres>(&store, EFFECTS).await.len() == 2
        })
        .await;
        // Rounds go on; the rest is not due in any of them.
        posta.nudge();
        actix_rt::time::sleep(Duration::from_secs(1)).await;
        posta.stop().await.expect("a drain");
        let effects = effects_of::<Postgres>(&store, EFFECTS).await;
        let mut keys: Vec<&str> = effects.iter().map(|effect| effect.key.as_str()).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["k0", "k2"], "ahead: {ahead}");
        assert_eq!(scheduled::<Postgres>(&store).await, 2);
    }
}

/// Puts clocks of its own before the server's, for every session of the database from now on.
async fn skew_clock(url: &str, ahead: bool) {
    let sign = if ahead { "+" } else { "-" };
    let clocks = [
        "now",
        "statement_timestamp",
        "clock_timestamp",
        "transaction_timestamp",
    ]
    .map(|clock| {
        format!(
            "CREATE FUNCTION skewed.{clock}() RETURNS timestamptz LANGUAGE sql STABLE \
                 RETURN pg_catalog.{clock}() {sign} interval '30 minutes';"
        )
    })
    .concat();
    let (_, database) = url.rsplit_once('/').expect("the URL ends in a database");
    let sql = format!(
        "CREATE SCHEMA skewed; {clocks} \
         ALTER DATABASE {database} SET search_path = skewed, pg_catalog, public"
    );
    postgres::run(url, &sql).await;
    let mut connection = postgres::connect_to(url).await;
    let sql = "SELECT EXTRACT(EPOCH FROM statement_timestamp() - pg_catalog.statement_timestamp())";
    let skew = postgres::number(&mut connection, sql).await;
    assert_eq!(skew, if ahead { 1800 } else { -1800 });
}

/// A delay shorter than the poll interval is kept though nobody else enqueues.
#[actix_rt::test]
async fn a_short_delay_is_not_rounded_up_to_the_poll_interval() {
    let world = World::<Sqlite>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let posta = builder(&world)
        .poll_interval_max(Duration::from_secs(60))
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    // The dispatcher rests.
    schedule(&posta, envelope(0, 0), Due::After(Duration::ZERO)).await;
    until_quiet::<Sqlite>(&store, EFFECTS, 1).await;
    let began = std::time::Instant::now();
    for number in 1..4 {
        schedule(
            &posta,
            envelope(0, number),
            Due::After(Duration::from_millis(300)),
        )
        .await;
        until_quiet::<Sqlite>(&store, EFFECTS, 1 + number as usize).await;
    }
    let took = began.elapsed();
    posta.stop().await.expect("a drain");
    assert!(took >= Duration::from_millis(900), "{took:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
}
