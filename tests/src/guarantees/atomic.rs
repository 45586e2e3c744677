//! G1: a message is dispatched if and only if the transaction that enqueued it committed.

use crate::world::child::{Orders, Service};
use crate::world::effects::{count, effects_of};
use crate::world::service::{EFFECTS, Fate, Numbered, effects_service, enqueue, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination};

on_every_combination!(
    a_rolled_back_transaction_sends_nothing,
    a_process_that_dies_around_the_commit_leaves_state_and_messages_agreeing,
);

async fn a_rolled_back_transaction_sends_nothing<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    let refused = posta
        .transaction(async |tx| {
            D::run(tx, "INSERT INTO state (key, number) VALUES ('k0', 0)").await?;
            tx.enqueue(&Numbered {
                key: "k0".to_owned(),
                number: 0,
                fate: Fate::Succeed,
            })?;
            Err::<(), _>(anyhow::anyhow!("the application changes its mind"))
        })
        .await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "the application changes its mind"
    );
    // A later transaction's message comes through; the earlier one's would have come first.
    enqueue(&posta, 1, 1..2, |_, _| Fate::Succeed).await;
    until_quiet::<D>(&store, EFFECTS, 1).await;
    posta.stop().await.expect("a drain");
    let numbers: Vec<i64> = effects_of::<D>(&store, EFFECTS)
        .await
        .iter()
        .map(|effect| effect.number)
        .collect();
    assert_eq!(numbers, [1]);
    assert_eq!(
        count::<D>(
            &store,
            "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM state"
        )
        .await,
        1
    );
}

async fn a_process_that_dies_around_the_commit_leaves_state_and_messages_agreeing<
    D: TestDatabase,
>(
    broker: BrokerKind,
) {
    for point in ["enqueue.inserted:3", "enqueue.committed:3"] {
        let world = World::<D>::fresh(broker).await;
        let store = world.store();
        let orders = Orders {
            crash_at: Some(point.to_owned()),
            enqueue: Some((4, 0, 10)),
            ..Orders::default()
        };
        Service::start(&world, &orders).died().await;
        let committed = count::<D>(
            &store,
            "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM state",
        )
        .await;
        let whole = if point.starts_with("enqueue.inserted") {
            2
        } else {
            3
        };
        assert_eq!(committed, 4 * whole, "{point}");
        let survivor = Service::start(&world, &Orders::default());
        until_quiet::<D>(&store, EFFECTS, committed as usize).await;
        survivor.stop().await;
        assert_eq!(
            effects_of::<D>(&store, EFFECTS).await.len() as i64,
            committed,
            "{point}"
        );
    }
}
