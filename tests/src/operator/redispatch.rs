use posta::operations::operator::RedispatchSelection;

use super::given::operator;
use crate::world::effects::{Verdict, effects_of, judge, rows, table};
use crate::world::service::{
    EFFECTS, Fate, builder, effects_service, enqueue, expected, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};
use posta::store::Store as _;

on_every_combination!(
    what_a_lost_queue_held_is_handled_once_after_a_redispatch,
    a_redispatch_takes_no_more_than_its_selection,
);

const KEYS: usize = 5;

async fn what_a_lost_queue_held_is_handled_once_after_a_redispatch<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let whole = async || effects_service(&world).await;
    // Ten are handled; forty more are in the queues when those are lost.
    let posta = whole().await;
    posta.declared().await;
    enqueue(&posta, KEYS, 0..2, |_, _| Fate::Succeed).await;
    until_quiet::<D>(&store, EFFECTS, 10).await;
    posta.stop().await.unwrap();
    let sender = builder(&world).start().await.expect("a running service");
    enqueue(&sender, KEYS, 2..10, |_, _| Fate::Succeed).await;
    until("all are dispatched", async || {
        rows::<D>(&store, "outbox", "1 = 1").await == 0
    })
    .await;
    sender.stop().await.unwrap();
    lose_queues(&world, broker).await;
    let posta = whole().await;
    posta.declared().await;
    let operator = posta.operator("ada").unwrap();
    let mut redispatch = operator
        .redispatch(&RedispatchSelection::default(), "the broker lost its disk")
        .await
        .unwrap();
    let preview = redispatch.preview().await.unwrap();
    assert_eq!((preview.rows, preview.keys), (50, KEYS as u64));
    assert_eq!(preview.lacking, [(EFFECTS.to_owned(), 40)]);
    let mut heard = Vec::new();
    let moved = redispatch.finish(|rows| heard.push(rows)).await.unwrap();
    assert_eq!((moved, heard.as_slice()), (50, [50].as_slice()));
    until_quiet::<D>(&store, EFFECTS, 50).await;
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(KEYS, 10)), Verdict::default());
    // What went out again is kept again, and not in the same selection twice.
    assert_eq!(rows::<D>(&store, "dispatched", "1 = 1").await, 50);
    assert_eq!(redispatch.preview().await.unwrap().rows, 0);
    let record = operator.record(None, 10).await.unwrap();
    assert_eq!(record.len(), 1);
    assert_eq!(record[0].what.action, "redispatch");
    assert!(
        record[0]
            .what
            .details
            .starts_with("50 rows: dispatched before ")
    );
    posta.stop().await.unwrap();
}

async fn a_redispatch_takes_no_more_than_its_selection<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    posta.declared().await;
    enqueue(&posta, KEYS, 0..4, |_, _| Fate::Succeed).await;
    until_quiet::<D>(&store, EFFECTS, 20).await;
    posta.stop().await.unwrap();
    let operator = operator(&world, "ada");
    let of = async |selection: RedispatchSelection| {
        let redispatch = operator.redispatch(&selection, "a look").await.unwrap();
        redispatch.preview().await.unwrap().rows
    };
    let all = RedispatchSelection::default;
    let key = RedispatchSelection {
        key: Some("k1".to_owned()),
        ..all()
    };
    let epoch = Some(time::OffsetDateTime::UNIX_EPOCH);
    let message_type = |name: &str| Some(name.to_owned());
    assert_eq!(of(all()).await, 20);
    assert_eq!(of(key.clone()).await, 4);
    assert_eq!(
        of(RedispatchSelection {
            message_type: message_type("test.numbered"),
            ..all()
        })
        .await,
        20
    );
    assert_eq!(
        of(RedispatchSelection {
            message_type: message_type("test.echo"),
            ..all()
        })
        .await,
        0
    );
    assert_eq!(
        of(RedispatchSelection {
            from: epoch,
            ..all()
        })
        .await,
        20
    );
    assert_eq!(
        of(RedispatchSelection {
            before: epoch,
            ..all()
        })
        .await,
        0
    );
    let mut redispatch = operator.redispatch(&key, "this key").await.unwrap();
    assert_eq!(redispatch.finish(drop).await.unwrap(), 4);
    assert_eq!(rows::<D>(&store, "outbox", "ordering_key = 'k1'").await, 4);
    assert_eq!(rows::<D>(&store, "dispatched", "1 = 1").await, 16);
}

/// Loses every message of every queue, as a broker does that lost its disk.
async fn lose_queues<D: TestDatabase>(world: &World<D>, broker: BrokerKind) {
    match broker {
        BrokerKind::Database => {
            let store = world.store();
            let queue = table::<D>(&store, "queue");
            let mut session = store.begin().await.unwrap();
            D::run(&mut session, &format!("DELETE FROM {queue}"))
                .await
                .unwrap();
            session.commit().await.unwrap();
        }
        BrokerKind::RabbitMq => {
            for partition in 0..4 {
                world
                    .vhost()
                    .delete_queue(&format!("{EFFECTS}.1.{partition}"));
            }
        }
    }
}
