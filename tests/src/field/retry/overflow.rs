use crate::field::{envelope, partition_of, send, state_of};
use crate::world::effects::{Verdict, effects_of, judge, rows};
use crate::world::script::{Act, Script, scripted_consumer, until_letters};
use crate::world::service::{EFFECTS, builder, quick_retry, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    a_key_that_overflows_pauses_its_partition_and_loses_nothing,
    a_limit_of_one_pauses_it_too,
);

const ALL: i64 = 60;

async fn a_key_that_overflows_pauses_its_partition_and_loses_nothing<D: TestDatabase>(
    broker: BrokerKind,
) {
    overflow::<D>(broker, 20, 5).await;
}

/// It must not take the second one again and again, until the broker gives up on it.
async fn a_limit_of_one_pauses_it_too<D: TestDatabase>(broker: BrokerKind) {
    overflow::<D>(broker, 1, 1).await;
}

async fn overflow<D: TestDatabase>(broker: BrokerKind, limit: usize, batch: usize) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let script = Script::one(0, 0, Act::DeadLetter);
    let posta = builder(&world)
        .held_max(limit)
        .consume_batch(batch)
        .consumer(scripted_consumer::<D>(&script).retry(quick_retry()))
        .start()
        .await
        .expect("a service");
    send(&posta, (0..ALL).map(|number| envelope(0, number)).collect()).await;
    let head = until_letters::<D>(&store, 1).await.remove(0);
    let partition = partition_of(0, 4);
    let child = format!("{EFFECTS} {partition}");
    until("its partition pauses", async || {
        let says = format!("messages of the key \"k0\" wait, the limit is {limit};");
        state_of(&posta, &child).contains(&says)
    })
    .await;
    let held = rows::<D>(&store, "retry", "1 = 1").await as usize;
    assert!(
        (limit..limit + 1 + 2 * batch).contains(&held),
        "{held} wait"
    );
    // Another partition knows nothing of it.
    let other = (1..)
        .find(|key| partition_of(*key, 4) != partition)
        .expect("a key");
    const OTHERS: i64 = 10;
    for number in 0..OTHERS {
        send(&posta, vec![envelope(other, number)]).await;
        until("another partition goes on", async || {
            effects_of::<D>(&store, EFFECTS).await.len() as i64 == number + 1
        })
        .await;
    }
    assert_eq!(rows::<D>(&store, "retry", "1 = 1").await as usize, held);
    assert!(!posta.status().await.expect("a status").healthy);

    script.mend();
    let operator = posta.operator("a test").expect("an operator");
    operator.replay(head.id, "mended").await.expect("a replay");
    until_quiet::<D>(&store, EFFECTS, (ALL + OTHERS) as usize).await;
    until("it is well again", async || {
        state_of(&posta, &child).is_empty()
    })
    .await;
    posta.stop().await.expect("a drain");
    let of_keys = [("k0".to_owned(), ALL), (format!("k{other}"), OTHERS)].into();
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &of_keys), Verdict::default());
    let of_others = format!("position <> {}", head.id);
    assert_eq!(rows::<D>(&store, "dead_letter", &of_others).await, 0);
}
