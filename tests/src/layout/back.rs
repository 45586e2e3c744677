use super::child::Process;
use super::judged::{assert_all_in_order, assert_queues, layout, until_rest};
use super::service::{Version, beta, enqueue, keys};
use crate::world::service::builder;
use crate::world::{BrokerKind, World};

/// From 4 to 8 and back: the change goes to its end first.
#[actix_rt::test]
async fn wishes_that_change_back_meanwhile_are_for_the_next_change() {
    let world = World::<posta::Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let former = Process::start(&world, 4, Version::One, None).await;
    let producer = builder(&world).start().await.expect("a producer");
    let keys = keys(12);
    enqueue(&producer, &keys, 0, beta).await;
    former.stop().await;
    enqueue(&producer, &keys, 1, beta).await;
    Process::start(&world, 8, Version::One, Some("layout.unbinding_recorded"))
        .await
        .died()
        .await;
    let midway = layout::<posta::Postgres>(&store).await.expect("a layout");
    assert_eq!(midway.next().map(|next| next.partitions), Some(8));
    enqueue(&producer, &keys, 2, beta).await;
    let back = Process::start(&world, 4, Version::One, None).await;
    enqueue(&producer, &keys, 3, beta).await;
    let number = loop {
        let number = until_rest::<posta::Postgres>(&store, 4).await;
        if number > midway.generation.number {
            break number;
        }
    };
    assert!(number >= midway.generation.number + 2, "{number}");
    assert_all_in_order::<posta::Postgres>(&store, &keys, 4).await;
    assert_queues(&world, number, 4).await;
    producer.stop().await.expect("a drain");
    back.stop().await;
}
