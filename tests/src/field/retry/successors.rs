use super::three_tries;
use crate::field::send;
use crate::world::effects::{Verdict, effects_of, judge, rows};
use crate::world::script::{Act, Script, until_letters};
use crate::world::service::{EFFECTS, Numbered, expected, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(a_long_backlog_of_a_key_runs_together_and_stops_at_the_next_failure);

const BACKLOG: i64 = 600;
const POISON: i64 = 400;

/// Behind the head everything runs in few transactions: no message is called more than a few times,
/// whatever fails among them.
async fn a_long_backlog_of_a_key_runs_together_and_stops_at_the_next_failure<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let script = Script::new(|message: &Numbered, _| match message.number {
        0 => Act::DeadLetter,
        POISON => Act::Permanent,
        _ => Act::Succeed,
    });
    let posta = three_tries(&world, &script)
        .start()
        .await
        .expect("a service");
    let operator = posta.operator("a test").expect("an operator");
    let numbers = (0..BACKLOG).map(|number| crate::field::envelope(0, number));
    send(&posta, numbers.collect()).await;
    let head = until_letters::<D>(&store, 1).await.remove(0);
    until("all wait", async || {
        rows::<D>(&store, "retry", "1 = 1").await == BACKLOG
    })
    .await;
    operator
        .discard(&[head.id], "not needed")
        .await
        .expect("a discard");
    let poison = until_letters::<D>(&store, 1).await.remove(0);
    assert_eq!(poison.reason, "permanent");
    until("all before the poison are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() as i64 == POISON - 1
    })
    .await;
    assert_eq!(rows::<D>(&store, "retry", "1 = 1").await, BACKLOG - POISON);
    script.mend();
    operator
        .replay(poison.id, "mended")
        .await
        .expect("a replay");
    until_quiet::<D>(&store, EFFECTS, BACKLOG as usize - 1).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    let shifted: Vec<_> = effects
        .into_iter()
        .map(|mut effect| {
            effect.number -= 1;
            effect
        })
        .collect();
    assert_eq!(
        judge(&shifted, &expected(1, BACKLOG - 1)),
        Verdict::default()
    );
    for number in 1..BACKLOG {
        let calls = script.tries(0, number).len();
        assert!(calls <= 4, "{number} was called {calls} times");
    }
}
