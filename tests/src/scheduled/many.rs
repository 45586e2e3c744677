use std::time::{Duration, Instant};

use posta::message::Slot;
use posta::store::{ScheduleStore, Store};
use posta::{Postgres, Sqlite};

use super::{envelope, micros, scheduled};
use crate::world::effects::{effects_of, rows};
use crate::world::service::{EFFECTS, Fate, effects_service, enqueue};
use crate::world::{BrokerKind, TestDatabase, World, until};

/// Writes messages of many keys into the table with plain SQL, all due at the same time from now.
async fn fill<D: TestDatabase>(store: &D::Store, messages: usize, in_seconds: i64) {
    let (columns, from) = (
        "due_at, message_type, ordering_key, payload",
        "{posta}scheduled",
    );
    // Their payloads are messages of the test's: key k<n>, number 0.
    let payload = "'{\"key\":\"k' || n || '\",\"number\":0,\"fate\":\"Succeed\"}'";
    let sql = match D::KIND {
        "sqlite" => format!(
            "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {messages})
             INSERT INTO {from} ({columns}, message_id, slot)
             SELECT CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER) * 1000 + {in_seconds} * 1000000,
                 'test.numbered', 'k' || n, CAST({payload} AS BLOB), randomblob(16), n % 64 FROM s"
        ),
        _ => format!(
            "INSERT INTO {from} ({columns})
             SELECT now() + {in_seconds} * interval '1 second', 'test.numbered', 'k' || n,
                 convert_to({payload}, 'UTF8')
             FROM generate_series(1, {messages}) AS s (n); ANALYZE {from}"
        ),
    };
    let table = crate::world::effects::table::<D>(store, "");
    let mut session = store.begin().await.expect("a transaction");
    D::run(&mut session, &sql.replace("{posta}", &table))
        .await
        .expect("rows");
    session.commit().await.expect("a commit");
}

/// The quickest of several looks for what is due, in all lanes.
async fn look<D: TestDatabase>(store: &D::Store) -> Duration {
    let lanes: Vec<Slot> = Slot::all().collect();
    let mut quickest = Duration::MAX;
    for _ in 0..5 {
        let mut session = store.begin().await.expect("a transaction");
        let began = Instant::now();
        let next = store.next_scheduled(&mut session, &lanes).await;
        quickest = quickest.min(began.elapsed());
        session.commit().await.expect("a commit");
        let next = next.expect("an answer").expect("something is scheduled");
        assert!(next > Duration::from_secs(3000), "{next:?}");
    }
    quickest
}

/// A million that are due in an hour: a look costs what it costs with few, and what is enqueued
/// meanwhile leaves at once.
async fn a_million_scheduled_messages_slow_no_round<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    fill::<D>(&store, 1000, 3600).await;
    let few = look::<D>(&store).await;
    fill::<D>(&store, 1_000_000, 3600).await;
    let many = look::<D>(&store).await;
    println!(
        "{}: a look {few:?} with a thousand, {many:?} with a million",
        D::KIND
    );
    assert!(
        many < few * 10 + Duration::from_millis(5),
        "{few:?}, {many:?}"
    );
    let posta = effects_service(&world).await;
    let began = Instant::now();
    enqueue(&posta, 1, 0..20, |_, _| Fate::Succeed).await;
    until("all are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 20
    })
    .await;
    println!("{}: 20 messages in {:?}", D::KIND, began.elapsed());
    assert!(began.elapsed() < Duration::from_secs(10));
    posta.stop().await.expect("a drain");
    assert_eq!(scheduled::<D>(&store).await, 1_001_000);
}

#[actix_rt::test]
async fn a_million_scheduled_messages_slow_no_round_on_sqlite() {
    a_million_scheduled_messages_slow_no_round::<Sqlite>().await;
}

#[actix_rt::test]
async fn a_million_scheduled_messages_slow_no_round_on_postgres() {
    a_million_scheduled_messages_slow_no_round::<Postgres>().await;
}

/// Twenty thousand come due at one instant: they move in batches, and what is enqueued after that
/// does not wait for the last of them.
async fn a_flood_of_due_messages_is_not_in_the_way<D: TestDatabase>() {
    const FLOOD: usize = 20_000;
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    fill::<D>(&store, FLOOD, 0).await;
    let posta = effects_service(&world).await;
    until("the flood has begun", async || {
        scheduled::<D>(&store).await < FLOOD as i64
    })
    .await;
    let fresh = envelope(FLOOD + 1, 0);
    let id = fresh.id;
    posta
        .transaction(async |tx| Ok::<_, anyhow::Error>(tx.enqueue_envelope(fresh)?))
        .await
        .expect("a transaction");
    until("the fresh one is dispatched", async || {
        let enqueued = format!("ordering_key = 'k{}'", FLOOD + 1);
        rows::<D>(&store, "dispatched", &enqueued).await == 1
    })
    .await;
    let left = scheduled::<D>(&store).await;
    println!(
        "{}: {left} of {FLOOD} were still scheduled when {id} had left",
        D::KIND
    );
    assert!(left > 0);
    until("all are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == FLOOD + 1
    })
    .await;
    posta.stop().await.expect("a drain");
    let late = format!(
        "{} < {}",
        micros::<D>("dispatched_at"),
        micros::<D>("enqueued_at")
    );
    assert_eq!(rows::<D>(&store, "dispatched", &late).await, 0);
}

#[actix_rt::test]
async fn a_flood_of_due_messages_is_not_in_the_way_on_sqlite() {
    a_flood_of_due_messages_is_not_in_the_way::<Sqlite>().await;
}

#[actix_rt::test]
async fn a_flood_of_due_messages_is_not_in_the_way_on_postgres() {
    a_flood_of_due_messages_is_not_in_the_way::<Postgres>().await;
}
