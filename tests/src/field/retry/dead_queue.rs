use std::time::Duration;

use posta::broker::PartitionQueue;
use posta::broker::rabbitmq::RabbitMq;
use posta::layout::Generation;
use posta::{Postgres, Sqlite};

use crate::field::{builder_on, envelope, partition_of, send};
use crate::world::effects::{Verdict, effects_of, judge, rows};
use crate::world::script::until_letters;
use crate::world::service::{Calls, EFFECTS, effects_consumer, expected, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World};

/// F17, the backstop: before any handler sees it, a message ends its channel so often that the
/// broker gives up on it. It becomes a dead letter, its key waits, and once only.
#[actix_rt::test]
async fn what_the_broker_gives_up_on_becomes_a_dead_letter() {
    given_up::<Sqlite>().await;
    given_up::<Postgres>().await;
}

async fn given_up<D: TestDatabase>() {
    let world = World::<D>::fresh(BrokerKind::RabbitMq).await;
    let (store, vhost) = (world.store(), world.vhost());
    let options = || vhost.options().delivery_limit(2);
    let consumer = || effects_consumer::<D>(&Calls::default());
    let posta = builder_on(&world, options())
        .consumer(consumer())
        .start()
        .await
        .expect("a service");
    posta.declared().await;
    posta.stop().await.expect("a drain");

    // Only dispatches.
    let lonely = builder_on(&world, options())
        .start()
        .await
        .expect("a service");
    send(&lonely, vec![envelope(0, 0)]).await;
    until_dispatched::<D>(&store, 1).await;
    let broker = RabbitMq::new(options());
    let queue = PartitionQueue {
        consumer: EFFECTS.to_owned(),
        generation: Generation::first(4),
        number: partition_of(0, 4),
    };
    let mut dead = false;
    while !dead {
        let mut subscription = broker.subscribe_to(&queue).await.expect("a subscription");
        let received = subscription.receive_up_to(1);
        let received = tokio::time::timeout(Duration::from_secs(1), received).await;
        // Nothing has come: it is on its way to the dead queue.
        dead = received.is_err();
        subscription.end().await;
    }
    send(&lonely, vec![envelope(0, 1), envelope(1, 0)]).await;
    until_dispatched::<D>(&store, 3).await;
    let dead_queue = format!("{EFFECTS}.dead");
    vhost
        .queue_until(&dead_queue, |queue| queue["messages"] == 1)
        .await;

    let posta = builder_on(&world, options())
        .consumer(consumer())
        .start()
        .await
        .expect("a service");
    let letter = until_letters::<D>(&store, 1).await.remove(0);
    assert_eq!(
        (letter.reason.as_str(), letter.parked),
        ("delivery_limit", true)
    );
    assert_eq!(letter.message.key.as_deref(), Some("k0"));
    vhost
        .queue_until(&dead_queue, |queue| queue["messages"] == 0)
        .await;
    // What comes later waits; the one that was on its way may have been faster.
    send(&lonely, vec![envelope(0, 2)]).await;
    crate::world::until("the key's last message waits", async || {
        let waiting = "NOT parked AND ordering_key = 'k0'";
        rows::<D>(&store, "retry", waiting).await >= 1
    })
    .await;
    let operator = posta.operator("a test").expect("an operator");
    operator
        .replay(letter.id, "once more")
        .await
        .expect("a replay");
    until_quiet::<D>(&store, EFFECTS, 4).await;
    posta.stop().await.expect("a drain");
    lonely.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    let mut verdict = judge(&effects, &{
        let mut of_keys = expected(1, 3);
        of_keys.extend([("k1".to_owned(), 1)]);
        of_keys
    });
    verdict.out_of_order = 0;
    assert_eq!(verdict, Verdict::default());
}

async fn until_dispatched<D: TestDatabase>(store: &D::Store, count: i64) {
    crate::world::until("all are at the broker", async || {
        rows::<D>(store, "dispatched", "1 = 1").await == count
    })
    .await;
}
