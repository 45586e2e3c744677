use posta::Envelope;

use crate::field::{numbered, partition_of, send};
use crate::world::child::{Orders, Service};
use crate::world::effects::{Verdict, effects_of, judge, rows};
use crate::world::script::{letters, until_letters};
use crate::world::service::{EFFECTS, Fate, builder, effects_service};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(what_kills_its_process_is_set_aside_and_its_neighbours_are_handled);

/// F17: one message of ten aborts the process that handles it, each time. The others of its
/// partition, which are fetched with it, are handled; it is a dead letter, its key waits, and
/// nothing is lost.
async fn what_kills_its_process_is_set_aside_and_its_neighbours_are_handled<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let keys: Vec<usize> = (0..)
        .filter(|key| partition_of(*key, 4) == partition_of(0, 4))
        .take(10)
        .collect();
    // Only dispatches: what handles is what dies.
    let posta = builder(&world).start().await.expect("a service");
    let first = Service::start(&world, &Orders::default());
    let mut messages: Vec<Envelope> = Vec::new();
    for (index, key) in keys.iter().enumerate() {
        let mut message = numbered(*key, 0);
        if index == 4 {
            message.fate = Fate::Abort;
        }
        messages.push(Envelope::of(&message).expect("an envelope"));
    }
    let killer = keys[4];
    messages.push(Envelope::of(&numbered(killer, 1)).expect("an envelope"));
    send(&posta, messages).await;
    first.died().await;
    let mut deaths = 1;
    while letters::<D>(&store).await.is_empty() {
        let mut child = Service::start(&world, &Orders::default());
        until("it dies, or there is a dead letter", async || {
            child.is_dead() || !letters::<D>(&store).await.is_empty()
        })
        .await;
        deaths += usize::from(child.is_dead());
        assert!(deaths < 12, "it kills and kills");
    }
    let letter = until_letters::<D>(&store, 1).await.remove(0);
    assert_eq!(letter.reason, "killed_process");
    assert_eq!(letter.error, "5 processes died while they ran it");
    assert_eq!(letter.message.key, Some(format!("k{killer}")));
    assert!(letter.parked);
    // Each of them ran before the suspicion of it came to a verdict.
    assert_eq!(effects_of::<D>(&store, EFFECTS).await.len(), 9);
    posta.stop().await.expect("a drain");

    let last = effects_service(&world).await;
    until("the neighbours are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 9
            && rows::<D>(&store, "retry", "1 = 1").await == 2
    })
    .await;
    last.stop().await.expect("a drain");
    assert_eq!(letters::<D>(&store).await.len(), 1);
    let neighbours = keys.iter().filter(|key| **key != killer);
    let of_keys = neighbours.map(|key| (format!("k{key}"), 1)).collect();
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &of_keys), Verdict::default());
}
