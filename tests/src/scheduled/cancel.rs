use std::collections::HashSet;
use std::time::Duration;

use posta::message::MessageId;
use posta::store::{Due, Store};
use posta::{Outbox, Postgres};

use super::{NEVER, cancel, database_now, envelope, numbered, schedule, scheduled};
use crate::world::effects::{effects_of, rows};
use crate::world::service::{
    Calls, EFFECTS, builder, effects_consumer, effects_service, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    cancelling_shares_the_fate_of_its_transaction,
    what_is_on_its_way_is_not_cancelled,
    of_cancelling_and_sending_exactly_one_happens,
);

/// In the transaction that scheduled it, in a later one, twice, rolled back.
async fn cancelling_shares_the_fate_of_its_transaction<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    let soon = Duration::from_millis(500);
    // Of three that one transaction schedules it takes one back.
    let kept = posta
        .transaction(async |tx| {
            let first = tx.enqueue_after(&numbered(0, 0), soon)?;
            let second = tx.enqueue_after(&numbered(0, 7), soon)?;
            let third = tx.enqueue_after(&numbered(0, 1), soon)?;
            assert!(tx.cancel_scheduled(second).await?);
            assert!(!tx.cancel_scheduled(second).await?);
            assert!(!tx.cancel_scheduled(MessageId::new()).await?);
            Ok::<_, anyhow::Error>([first, third])
        })
        .await
        .expect("a transaction");
    let later = schedule(&posta, envelope(1, 0), Due::After(soon)).await;
    let stays = schedule(&posta, envelope(2, 0), Due::After(soon)).await;
    // Rolled back: it stays, and what the transaction scheduled never was.
    let error = posta
        .transaction(async |tx| {
            assert!(tx.cancel_scheduled(stays).await?);
            tx.enqueue_after(&numbered(3, 0), soon)?;
            Err::<(), _>(anyhow::anyhow!("changed my mind"))
        })
        .await
        .expect_err("its own error");
    assert_eq!(error.to_string(), "changed my mind");
    assert!(cancel(&posta, later).await);
    assert!(!cancel(&posta, later).await);
    until_quiet::<D>(&store, EFFECTS, 3).await;
    posta.stop().await.expect("a drain");
    assert_eq!(scheduled::<D>(&store).await, 0);
    let effects = effects_of::<D>(&store, EFFECTS).await;
    let sent: HashSet<String> = effects.iter().map(|it| it.message_id.clone()).collect();
    let expected = [kept[0], kept[1], stays].map(|id| id.to_string());
    assert_eq!((effects.len(), sent), (3, expected.into()));
}

async fn what_is_on_its_way_is_not_cancelled<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    let now = schedule(&posta, envelope(0, 0), Due::After(Duration::ZERO)).await;
    until("it is on its way", async || {
        scheduled::<D>(&store).await == 0
    })
    .await;
    assert!(!cancel(&posta, now).await);
    until_quiet::<D>(&store, EFFECTS, 1).await;
    let never = schedule(&posta, envelope(1, 0), Due::After(NEVER)).await;
    assert_eq!(posta.status().await.expect("a status").scheduled, 1);
    assert!(cancel(&posta, never).await);
    assert_eq!(posta.status().await.expect("a status").scheduled, 0);
    posta.stop().await.expect("a drain");
    assert_eq!(effects_of::<D>(&store, EFFECTS).await.len(), 1);
}

/// Many are due at one instant, and all are cancelled around it, one by one.
async fn of_cancelling_and_sending_exactly_one_happens<D: TestDatabase>(broker: BrokerKind) {
    const MESSAGES: usize = 300;
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        .dispatch_batch(10)
        .consumer(effects_consumer::<D>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let now = database_now::<D>(&store).await;
    let at = Due::At(now + Duration::from_millis(800));
    let mut ids = posta
        .transaction(async |tx| {
            let ids: Result<Vec<MessageId>, _> = (0..MESSAGES)
                .map(|key| tx.schedule_envelope(envelope(key, 0), at))
                .collect();
            Ok::<_, anyhow::Error>(ids?)
        })
        .await
        .expect("a transaction");
    // From the end: the dispatcher begins with those that were scheduled first.
    ids.reverse();
    until("the first of them moves", async || {
        scheduled::<D>(&store).await < MESSAGES as i64
    })
    .await;
    let mut cancelled = HashSet::new();
    for id in &ids {
        if cancel(&posta, *id).await {
            cancelled.insert(id.to_string());
        }
    }
    assert_eq!(scheduled::<D>(&store).await, 0);
    until_quiet::<D>(&store, EFFECTS, MESSAGES - cancelled.len()).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    let sent: HashSet<String> = effects.iter().map(|it| it.message_id.clone()).collect();
    assert_eq!(sent.len(), effects.len());
    assert!(sent.is_disjoint(&cancelled));
    assert_eq!(sent.len() + cancelled.len(), MESSAGES);
    println!("{} sent, {} cancelled", sent.len(), cancelled.len());
    let moved = rows::<D>(&store, "dispatched", "1 = 1").await;
    assert_eq!(moved as usize, sent.len());
}

/// Somebody's transaction that cancels, and then takes its time, holds up nobody's message but those
/// of the same key; and if it is undone after all, those follow in order.
#[actix_rt::test]
async fn a_cancelling_that_takes_its_time_holds_up_its_own_key_only() {
    let world = World::<Postgres>::fresh(BrokerKind::Database).await;
    let store = world.store();
    let posta = builder(&world)
        .arbiters(1)
        .consumer(effects_consumer::<Postgres>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let soon = Duration::from_millis(600);
    let (head, others) = posta
        .transaction(async |tx| {
            let head = tx.enqueue_after(&numbered(0, 0), soon)?;
            tx.enqueue_after(&numbered(0, 1), soon)?;
            for key in 1..70 {
                tx.enqueue_after(&numbered(key, 0), soon)?;
            }
            Ok::<_, anyhow::Error>((head, 69))
        })
        .await
        .expect("a transaction");
    let outbox = Outbox::<Postgres>::new(world.tables.clone());
    let mut slow = store.begin().await.expect("a transaction");
    assert!(
        outbox
            .cancel_scheduled(&mut slow, head)
            .await
            .expect("an answer")
    );
    until("all others are through", async || {
        effects_of::<Postgres>(&store, EFFECTS).await.len() == others
    })
    .await;
    assert_eq!(scheduled::<Postgres>(&store).await, 2);
    slow.rollback().await;
    until_quiet::<Postgres>(&store, EFFECTS, others + 2).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<Postgres>(&store, EFFECTS).await;
    let of_key = effects.iter().filter(|effect| effect.key == "k0");
    let numbers: Vec<i64> = of_key.map(|effect| effect.number).collect();
    assert_eq!(numbers, [0, 1]);
}
