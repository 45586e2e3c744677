use posta::message::{MessageId, Slot};
use posta::{OrderingKey, Postgres, Sqlite};
use uuid::Uuid;

use super::scheduled;
use crate::world::effects::{effects_of, rows, table};
use crate::world::service::{EFFECTS, effects_service, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World};

const PAYLOAD: &str = r#"{"key":"k0","number":0,"fate":"Succeed"}"#;

/// The contract of docs/outbox.md: what another language has to write, and how it takes it back.
async fn plain_sql_schedules_and_cancels<D: TestDatabase>(insert: impl Fn(&str) -> String) {
    let world = World::<D>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    let table = table::<D>(&store, "scheduled");
    // One that has passed, and one that is far away.
    let (passed, far) = ("- 1", "+ 1000");
    posta
        .transaction(async |tx| {
            D::run(tx, &insert(&table).replace("{in}", passed)).await?;
            D::run(tx, &insert(&table).replace("{in}", far)).await?;
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction");
    until_quiet::<D>(&store, EFFECTS, 1).await;
    assert_eq!(scheduled::<D>(&store).await, 1);
    posta
        .transaction(async |tx| {
            D::run(tx, &format!("DELETE FROM {table}")).await?;
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction");
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!((effects.len(), effects[0].key.as_str()), (1, "k0"));
    assert_eq!(scheduled::<D>(&store).await, 0);
    assert_eq!(rows::<D>(&store, "outbox", "1 = 1").await, 0);
}

#[actix_rt::test]
async fn plain_sql_schedules_and_cancels_on_postgres() {
    plain_sql_schedules_and_cancels::<Postgres>(|table| {
        format!(
            "INSERT INTO {table} (due_at, message_type, payload)
             VALUES (now() {{in}} * interval '1 second', 'test.numbered', convert_to('{PAYLOAD}', 'UTF8'))"
        )
    })
    .await;
}

#[actix_rt::test]
async fn plain_sql_schedules_and_cancels_on_sqlite() {
    plain_sql_schedules_and_cancels::<Sqlite>(|table| {
        // What another language computes by the contract.
        let key = OrderingKey::new("k0").expect("a key");
        let id = Uuid::new_v4();
        let slot = Slot::of(Some(&key), MessageId::from(id)).number();
        let id = id.simple();
        format!(
            "INSERT INTO {table} (due_at, message_id, slot, message_type, ordering_key, payload)
             VALUES ((unixepoch() {{in}}) * 1000000, x'{id}', {slot}, 'test.numbered', 'k0', CAST('{PAYLOAD}' AS BLOB))"
        )
    })
    .await;
}
