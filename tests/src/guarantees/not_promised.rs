//! N1 to N4: what Posta does not promise, shown, so that nobody relies on it.

use posta::MessageId;

use crate::world::child::{Orders, Service};
use crate::world::effects::{count, effects_of};
use crate::world::service::{
    Calls, EFFECTS, Fate, Numbered, builder, effects_consumer, enqueue, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, until};

/// N1: a crash between confirm and settle publishes again; the inbox refuses the copy.
#[actix_rt::test]
async fn a_crash_between_confirm_and_settle_publishes_again() {
    published_again::<posta::Sqlite>().await;
    published_again::<posta::Postgres>().await;
}

async fn published_again<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let orders = Orders {
        crash_at: Some("dispatch.published".to_owned()),
        enqueue: Some((1, 0, 1)),
        ..Orders::default()
    };
    Service::start(&world, &orders).died().await;
    let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM {posta}outbox";
    assert_eq!(
        count::<D>(&store, sql).await,
        1,
        "published, and not settled"
    );
    let posta = builder(&world)
        .consumer(effects_consumer::<D>(&Calls::default()))
        .consumer(crate::world::service::echoes_consumer::<D>())
        .start()
        .await
        .expect("a running service");
    until("the second copy was refused", async || {
        posta.status().await.unwrap().counts.duplicates >= 1
    })
    .await;
    posta.stop().await.expect("a drain");
    assert_eq!(effects_of::<D>(&store, EFFECTS).await.len(), 1);
}

/// N2: a handler can run more than once; only its effects are once.
#[actix_rt::test]
async fn a_handler_runs_more_than_once_and_only_its_effects_are_once() {
    let world = World::<posta::Sqlite>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let calls = Calls::default();
    let posta = builder(&world)
        .consumer(effects_consumer::<posta::Sqlite>(&calls))
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 1, 0..1, |_, _| Fate::FailTimes(2)).await;
    until_quiet::<posta::Sqlite>(&store, EFFECTS, 1).await;
    posta.stop().await.expect("a drain");
    assert!(calls.count() >= 3);
    assert_eq!(effects_of::<posta::Sqlite>(&store, EFFECTS).await.len(), 1);
}

/// N3: different keys have no order: one that waits for its retry is overtaken by all others.
#[actix_rt::test]
async fn a_later_message_of_another_key_can_take_effect_first() {
    let world = World::<posta::Sqlite>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let posta = builder(&world)
        .consumer(effects_consumer::<posta::Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    enqueue(&posta, 2, 0..1, |key, _| {
        if key == 0 {
            Fate::FailTimes(2)
        } else {
            Fate::Succeed
        }
    })
    .await;
    until_quiet::<posta::Sqlite>(&store, EFFECTS, 2).await;
    posta.stop().await.expect("a drain");
    let keys: Vec<String> = effects_of::<posta::Sqlite>(&store, EFFECTS)
        .await
        .into_iter()
        .map(|e| e.key)
        .collect();
    assert_eq!(keys, ["k1", "k0"]);
}

/// N4: a duplicate that arrives after its inbox row is gone passes as new.
#[actix_rt::test]
async fn a_duplicate_after_the_inbox_has_forgotten_passes_as_new() {
    let world = World::<posta::Sqlite>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let posta = builder(&world)
        .consumer(effects_consumer::<posta::Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let id = MessageId::new();
    let message = Numbered {
        key: "k0".to_owned(),
        number: 0,
        fate: Fate::Succeed,
    };
    for copies in 1..=2 {
        let mut envelope = posta::Envelope::of(&message).expect("an envelope");
        envelope.id = id;
        posta
            .transaction(async |tx| {
                tx.enqueue_envelope(envelope)?;
                Ok::<_, anyhow::Error>(())
            })
            .await
            .expect("a transaction");
        until_quiet::<posta::Sqlite>(&store, EFFECTS, copies).await;
        posta
            .transaction(async |tx| {
                posta::Sqlite::run(tx, "DELETE FROM posta_inbox").await?;
                Ok::<_, anyhow::Error>(())
            })
            .await
            .expect("what a clean-up would do");
    }
    posta.stop().await.expect("a drain");
    assert_eq!(effects_of::<posta::Sqlite>(&store, EFFECTS).await.len(), 2);
}
