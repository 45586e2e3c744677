//! The database fails over, or its tables change, under a running service: it is nobody's attempt,
//! and no actor ends of it.

use diesel::{ExpressionMethods as _, QueryDsl as _};
use diesel_async::RunQueryDsl as _;
use posta::{Consumer, DeliveryInfo, Failure, Posta, Postgres, Tx};

use crate::harness::postgres::{run, variable};
use crate::world::effects::{Effect, Verdict, effects_of, judge, rows};
use crate::world::service::{
    EFFECTS, Fate, Numbered, builder, effects_service, enqueue, expected, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase as _, World, until};

/// Ends every session of the database, as the end of a server does.
async fn end_sessions(name: &str) {
    let sql = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = '{name}' AND pid <> pg_backend_pid()"
    );
    run(&variable("POSTA_TEST_POSTGRES"), &sql).await;
}

async fn nobody_has_used_up_an_attempt(posta: &Posta<Postgres>, world: &World<Postgres>) {
    let counts = posta.status().await.expect("a status").counts;
    assert_eq!(
        (counts.held, counts.dead_letters, counts.dispatch_failures),
        (0, 0, 0)
    );
    let tried = rows::<Postgres>(&world.store(), "dispatched", "attempts > 0").await;
    assert_eq!(tried, 0);
    for (name, status) in posta.registry().children() {
        assert_eq!(status.restarts, 0, "{name}: {status:?}");
    }
}

/// The primary turns read-only with all its sessions open; then they are ended, and only read-only
/// ones can be made; then there is one that writes.
async fn a_failover_is_waited_out(broker: BrokerKind) {
    let world = World::<Postgres>::fresh(broker).await;
    let store = world.store();
    let (_, name) = world.database_url.rsplit_once('/').expect("a database");
    let alter = |what: &str| format!("ALTER DATABASE {name} {what}");
    let admin = variable("POSTA_TEST_POSTGRES");
    let posta = effects_service(&world).await;
    enqueue(&posta, 8, 0..10, |_, _| Fate::Succeed).await;
    run(&admin, &alter("SET default_transaction_read_only = on")).await;
    end_sessions(name).await;
    until("the actors have noticed", async || {
        !posta.registry().is_healthy()
    })
    .await;
    // The pool is full of what has ended by then, time and again.
    end_sessions(name).await;
    run(&admin, &alter("RESET default_transaction_read_only")).await;
    end_sessions(name).await;
    until("all is well", async || posta.registry().is_healthy()).await;
    enqueue(&posta, 8, 10..20, |_, _| Fate::Succeed).await;
    until_quiet::<Postgres>(&store, EFFECTS, 8 * 20).await;
    nobody_has_used_up_an_attempt(&posta, &world).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(8, 20)), Verdict::default());
}

#[actix_rt::test]
async fn a_failover_of_the_database_is_waited_out_with_rabbitmq() {
    a_failover_is_waited_out(BrokerKind::RabbitMq).await;
}

#[actix_rt::test]
async fn a_failover_of_the_database_is_waited_out_with_the_database_broker() {
    a_failover_is_waited_out(BrokerKind::Database).await;
}

diesel::table! {
    state (key, number) {
        key -> Text,
        number -> BigInt,
    }
}

/// Few, so that all are used.
const CONNECTIONS: usize = 6;

/// Reads the state in a statement that stays prepared on its connection.
async fn on_numbered(
    message: Numbered,
    tx: &mut Tx<'_, Postgres>,
    info: DeliveryInfo,
) -> Result<(), Failure> {
    let key: String = state::table
        .select(state::key)
        .filter(state::key.eq(&message.key))
        .filter(state::number.eq(message.number))
        .first(tx)
        .await?;
    if info.attempt > 1 {
        return Err(Failure::dead_letter("it is tried once more"));
    }
    let effect = Effect {
        consumer: EFFECTS.to_owned(),
        key,
        number: message.number,
        message_id: info.id.to_string(),
        payload: Vec::new(),
    };
    Postgres::record(tx, effect).await?;
    Ok(())
}

/// The application's own migration changes the type that a prepared statement returns.
#[actix_rt::test]
async fn a_table_that_changes_under_prepared_statements_costs_no_attempt() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let consumer = Consumer::named(EFFECTS)
        .partitions(4)
        .handle_with::<Numbered, _>(on_numbered);
    let posta = builder(&world)
        .connections_max(CONNECTIONS)
        .consumer(consumer)
        .start();
    let posta = posta.await.expect("a running service");
    for (number, length) in [(0, 100), (1, 200), (2, 300)] {
        enqueue(&posta, 8, number..number + 1, |_, _| Fate::Succeed).await;
        until_quiet::<Postgres>(&store, EFFECTS, 8 * (number as usize + 1)).await;
        let change = format!("ALTER TABLE state ALTER COLUMN key TYPE varchar({length})");
        run(&world.database_url, &change).await;
    }
    // In the application's own transactions somebody must see the error: once a connection.
    let read = async |tx: &mut Tx<'_, Postgres>| {
        let key = state::table.select(state::key).first(tx).await?;
        Ok::<String, anyhow::Error>(key)
    };
    posta.transaction(read).await.expect("a key");
    let change = "ALTER TABLE state ALTER COLUMN key TYPE varchar(400)";
    run(&world.database_url, change).await;
    let mut failures = 0;
    while posta.transaction(read).await.is_err() {
        failures += 1;
        assert!(failures <= CONNECTIONS, "a connection fails again");
    }
    enqueue(&posta, 8, 3..10, |_, _| Fate::Succeed).await;
    until_quiet::<Postgres>(&store, EFFECTS, 8 * 10).await;
    nobody_has_used_up_an_attempt(&posta, &world).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(8, 10)), Verdict::default());
}
