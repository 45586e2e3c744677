use std::time::Duration;

use posta::message::CAUSATION_ID;
use posta::outbox::{DELAY_MAX, DueError, EnqueueError};
use posta::store::{Due, Store};
use posta::{Consumer, DeliveryInfo, Failure, Outbox, Tx};
use time::OffsetDateTime;

use super::{NEVER, envelope, numbered, schedule, scheduled};
use crate::world::effects::{effects_of, rows};
use crate::world::service::{EFFECTS, Echo, Numbered, builder, effects_service, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    a_time_out_of_the_limits_is_refused_before_any_sql_and_the_transaction_goes_on,
    what_is_scheduled_is_rolled_back_with_its_transaction,
    what_a_handler_schedules_follows_from_its_message,
    it_works_on_a_transaction_of_the_applications_own,
);

async fn a_time_out_of_the_limits_is_refused_before_any_sql_and_the_transaction_goes_on<
    D: TestDatabase,
>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world).start().await.expect("a running service");
    posta
        .transaction(async |tx| {
            let over = DELAY_MAX + Duration::from_secs(1);
            let refused = tx.enqueue_after(&numbered(0, 0), over);
            match refused.expect_err("a delay that is refused") {
                EnqueueError::Due {
                    message_type,
                    source: DueError::Delay { delay, delay_max },
                } => {
                    assert_eq!(message_type, "test.numbered");
                    assert_eq!((delay, delay_max), (over, DELAY_MAX));
                }
                other => panic!("{other:?}"),
            }
            tx.enqueue_after(&numbered(0, 0), DELAY_MAX)?;
            let last_year = time::macros::datetime!(9999-12-31 23:59:59.999999 UTC);
            tx.enqueue_at(&numbered(0, 1), last_year)?;
            tx.enqueue_at(&numbered(0, 2), OffsetDateTime::now_utc() + DELAY_MAX * 2)?;
            let mut large = envelope(0, 3);
            large.payload = vec![0; posta::message::limits::PAYLOAD_BYTES_DEFAULT + 1].into();
            let refused = tx.schedule_envelope(large, Due::After(NEVER));
            assert!(matches!(refused, Err(EnqueueError::Message { .. })));
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction");
    posta.stop().await.expect("a drain");
    assert_eq!(scheduled::<D>(&store).await, 3);
}

async fn what_is_scheduled_is_rolled_back_with_its_transaction<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world).start().await.expect("a running service");
    let error = posta
        .transaction(async |tx| {
            tx.enqueue_after(&numbered(0, 0), Duration::ZERO)?;
            Err::<(), _>(anyhow::anyhow!("changed my mind"))
        })
        .await;
    error.expect_err("its own error");
    schedule(&posta, envelope(1, 0), Due::After(Duration::ZERO)).await;
    until("the other one has moved", async || {
        rows::<D>(&store, "outbox", "ordering_key = 'k1'").await == 1
    })
    .await;
    posta.stop().await.expect("a drain");
    assert_eq!(scheduled::<D>(&store).await, 0);
    assert_eq!(rows::<D>(&store, "outbox", "1 = 1").await, 1);
}

/// Fails once after it has scheduled: only the second try's message stays.
async fn schedules<D: TestDatabase>(
    message: Numbered,
    tx: &mut Tx<'_, D>,
    info: DeliveryInfo,
) -> Result<(), Failure> {
    let key = message.key;
    tx.enqueue_after(
        &Echo {
            key,
            number: i64::from(info.attempt),
        },
        NEVER,
    )?;
    match info.attempt {
        1 => Err(Failure::new("the first try fails")),
        _ => Ok(()),
    }
}

async fn what_a_handler_schedules_follows_from_its_message<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        .consumer(Consumer::named(EFFECTS).handle_with::<Numbered, _>(schedules::<D>))
        .start()
        .await
        .expect("a running service");
    let cause = envelope(0, 0);
    let id = cause.id;
    posta
        .transaction(async |tx| Ok::<_, anyhow::Error>(tx.enqueue_envelope(cause)?))
        .await
        .expect("a transaction");
    until_quiet::<D>(&store, EFFECTS, 0).await;
    until("its message is scheduled", async || {
        scheduled::<D>(&store).await == 1
    })
    .await;
    posta.stop().await.expect("a drain");
    let follows = format!(
        "CAST(headers AS TEXT) LIKE '%\"{CAUSATION_ID}\"%{id}%' AND message_type = 'test.echo'"
    );
    assert_eq!(rows::<D>(&store, "scheduled", &follows).await, 1);
}

async fn it_works_on_a_transaction_of_the_applications_own<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    let outbox = Outbox::<D>::new(world.tables.clone());
    let mut session = store.begin().await.expect("a transaction");
    let soon = Duration::from_millis(300);
    let kept = [
        outbox
            .enqueue_after(&mut session, &numbered(0, 0), soon)
            .await
            .expect("a row"),
        outbox
            .enqueue_at(&mut session, &numbered(1, 0), OffsetDateTime::UNIX_EPOCH)
            .await
            .expect("a row"),
    ];
    let taken_back = outbox
        .enqueue_after(&mut session, &numbered(2, 0), soon)
        .await
        .expect("a row");
    assert!(
        outbox
            .cancel_scheduled(&mut session, taken_back)
            .await
            .expect("an answer")
    );
    let refused = outbox
        .enqueue_after(&mut session, &numbered(2, 0), Duration::MAX)
        .await;
    refused.expect_err("a delay that is refused");
    session.commit().await.expect("a commit");
    let mut session = store.begin().await.expect("a transaction");
    let never = outbox
        .enqueue_after(&mut session, &numbered(3, 0), soon)
        .await;
    never.expect("a row");
    session.rollback().await;
    // Nobody is nudged; polling finds it.
    until_quiet::<D>(&store, EFFECTS, 2).await;
    posta.stop().await.expect("a drain");
    let mut sent: Vec<String> = effects_of::<D>(&store, EFFECTS)
        .await
        .into_iter()
        .map(|effect| effect.message_id)
        .collect();
    sent.sort_unstable();
    let mut kept = kept.map(|id| id.to_string());
    kept.sort_unstable();
    assert_eq!(sent, kept);
    assert_eq!(scheduled::<D>(&store).await, 0);
}
