//! What tables and queues say.

use std::collections::BTreeMap;

use posta::layout::{Layout, LayoutStep};
use posta::store::{LayoutStore, Store};

use super::service::{HOPELESS, MOVED, PARKED};
use crate::world::effects::{Verdict, effects_of, judge, rows};
use crate::world::{TestDatabase, World, until};

/// The consumer's layout.
pub(super) async fn layout<D: TestDatabase>(store: &D::Store) -> Option<Layout> {
    let mut session = store.begin().await.expect("a transaction");
    let layout = store.layout(&mut session, MOVED).await;
    session.commit().await.expect("a commit");
    layout.expect("the layout")
}

/// Waits until so many partitions are in use and nothing moves; the layout's number. On a machine that
/// stalls a process for longer than its time, there may have been others in between.
pub(super) async fn until_rest<D: TestDatabase>(store: &D::Store, partitions: u8) -> u32 {
    let mut number = 0;
    until(&format!("{partitions} partitions are in use"), async || {
        let Some(layout) = layout::<D>(store).await else {
            return false;
        };
        number = layout.generation.number;
        layout.generation.partitions == partitions && layout.step == LayoutStep::Rest
    })
    .await;
    number
}

/// Waits for the effects of these keys, so many of each, and judges them: none lost, none twice, in
/// order.
pub(super) async fn assert_all_in_order<D: TestDatabase>(
    store: &D::Store,
    keys: &[String],
    count: i64,
) {
    assert_in_order::<D>(store, &expected(keys, count)).await;
}

/// So many numbers of each of these keys.
pub(super) fn expected(keys: &[String], count: i64) -> BTreeMap<String, i64> {
    keys.iter().map(|key| (key.clone(), count)).collect()
}

/// The same of keys with different counts.
pub(super) async fn assert_in_order<D: TestDatabase>(
    store: &D::Store,
    expected: &BTreeMap<String, i64>,
) {
    let all = expected.values().sum::<i64>() as usize;
    until(&format!("{all} effects"), async || {
        effects_of::<D>(store, MOVED).await.len() >= all
    })
    .await;
    // What is there twice comes a little later.
    until("the outbox is empty", async || {
        rows::<D>(store, "outbox", "1 = 1").await + rows::<D>(store, "queue", "1 = 1").await == 0
    })
    .await;
    let effects = effects_of::<D>(store, MOVED).await;
    let verdict = judge(&effects, expected);
    if verdict != Verdict::default() {
        for key in expected.keys() {
            let of_key = effects.iter().filter(|effect| effect.key == *key);
            let numbers: Vec<i64> = of_key.map(|effect| effect.number).collect();
            eprintln!("{key}: {numbers:?}");
        }
    }
    assert_eq!(verdict, Verdict::default());
}

/// The keys that wait still do, in order, every message of them.
pub(super) async fn assert_waiting<D: TestDatabase>(store: &D::Store, count: i64) {
    until("all messages of the waiting keys wait", async || {
        let mut waiting = Vec::new();
        for key in [HOPELESS, PARKED] {
            let of_key = format!("ordering_key = '{key}'");
            waiting.push(rows::<D>(store, "retry", &of_key).await);
        }
        waiting == [count, count]
    })
    .await;
    assert_eq!(rows::<D>(store, "dead_letter", "state = 'dead'").await, 1);
    assert_eq!(rows::<D>(store, "retry", "parked").await, 1);
    let tried = format!("ordering_key = '{HOPELESS}' AND attempts > 0");
    assert_eq!(rows::<D>(store, "retry", &tried).await, 1, "only its head");
}

/// On the broker there is what the layout says, and nothing of the one before.
pub(super) async fn assert_queues<D: TestDatabase>(world: &World<D>, number: u32, partitions: u8) {
    let vhost = world.vhost();
    let prefix = format!("{MOVED}.");
    let mut expected: Vec<String> = (0..partitions)
        .map(|partition| format!("{prefix}{number}.{partition}"))
        .collect();
    expected.push(format!("{MOVED}.dead"));
    expected.sort();
    let mut queues = vhost.queue_names();
    queues.retain(|queue| queue.starts_with(&prefix));
    queues.sort();
    assert_eq!(queues, expected);
    for partition in 0..partitions {
        let queue = format!("{prefix}{number}.{partition}");
        vhost
            .queue_until(&queue, |queue| {
                queue["messages"] == 0 && queue["consumers"] == 1
            })
            .await;
    }
    // The layout's exchange gets each type that was ever announced, and gives each slot to a queue.
    let types = rows::<D>(&world.store(), "handled_type", "1 = 1").await as usize;
    let exchange = format!("{prefix}{number}");
    let mut bound = vhost.bindings("posta");
    bound.retain(|(to, _)| to.starts_with(&prefix));
    assert_eq!(bound.len(), types);
    assert!(bound.iter().all(|(to, _)| *to == exchange), "{bound:?}");
    assert_eq!(vhost.bindings(&exchange).len(), 64);
}
