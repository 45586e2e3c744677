use std::time::Duration;

use posta::operations::StartError;
use posta::retry::RetryPolicy;
use posta::store::LetterState;
use posta::{Consumer, Data, Failure, Message, Sqlite, Tx};
use serde::{Deserialize, Serialize};

use super::three_tries;
use crate::field::{envelope, send};
use crate::world::effects::{Verdict, effects_of, judge};
use crate::world::script::{Act, Script, letters, scripted_consumer, until_letters};
use crate::world::service::{
    Calls, EFFECTS, builder, effects_consumer, expected, quick_retry, until_quiet,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    a_message_is_dead_after_its_last_try_and_again_after_a_replay,
    tries_at_once_wait_for_nothing,
    a_failing_message_is_tried_at_its_pace_however_many_processes_there_are,
    a_message_type_brings_its_own_policy,
);

/// Longer than any test: a try whose lease is lost in the middle is none.
const LONG: Duration = Duration::from_secs(60);

/// F18: exactly as many tries as allowed; a replay gets as many again; the first try after the fix
/// is through.
async fn a_message_is_dead_after_its_last_try_and_again_after_a_replay<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let script = Script::one(0, 0, Act::Fail);
    let posta = three_tries(&world, &script)
        .lease_ttl(LONG)
        .start()
        .await
        .expect("a service");
    let operator = posta.operator("a test").expect("an operator");
    send(&posta, vec![envelope(0, 0), envelope(1, 0)]).await;
    let dead = until_letters::<D>(&store, 1).await.remove(0);
    let attempts = |tries: &[crate::world::script::Try]| -> Vec<u32> {
        tries.iter().map(|it| it.attempt).collect()
    };
    assert_eq!(attempts(&script.tries(0, 0)), [1, 2, 3]);
    assert_eq!((dead.reason.as_str(), dead.attempts), ("failed", 3));
    assert_eq!(
        dead.error,
        "the handler failed: told to fail: no such thing as 0"
    );
    assert_eq!(
        dead.fingerprint,
        "the handler failed: told to fail: no such thing as #"
    );
    assert!(dead.parked && dead.replays == 0);
    let first = dead.first_failed_at.expect("when it failed first");
    assert!(first <= dead.dead_at);

    operator
        .replay(dead.id, "once more")
        .await
        .expect("a replay");
    until("it has died again", async || {
        let letter = &letters::<D>(&store).await;
        letter.len() == 1 && letter[0].replays == 1 && letter[0].state == LetterState::Dead
    })
    .await;
    assert_eq!(attempts(&script.tries(0, 0)), [1, 2, 3, 1, 2, 3]);
    let again = letters::<D>(&store).await.remove(0);
    assert_eq!((again.id, again.attempts), (dead.id, 3));
    assert_eq!(again.first_failed_at, dead.first_failed_at);

    script.mend();
    operator.replay(dead.id, "mended").await.expect("a replay");
    until_quiet::<D>(&store, EFFECTS, 2).await;
    posta.stop().await.expect("a drain");
    assert_eq!(script.tries(0, 0).len(), 7);
    assert!(letters::<D>(&store).await.is_empty());
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(2, 1)), Verdict::default());
}

/// Every try is used up although a delayed one would come in an hour only.
async fn tries_at_once_wait_for_nothing<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let script = Script::new(|message, attempt| match (message.number, attempt) {
        (1, 3) | (2, _) => Act::Succeed,
        _ => Act::Fail,
    });
    let hour = Duration::from_secs(3600);
    let policy = RetryPolicy::default()
        .attempts_max(3)
        .immediate(2)
        .backoff(hour, hour);
    let posta = builder(&world)
        .consumer(scripted_consumer::<D>(&script).retry(policy))
        .start()
        .await
        .expect("a service");
    send(
        &posta,
        vec![
            envelope(0, 0),
            envelope(1, 1),
            envelope(2, 2),
            envelope(0, 2),
        ],
    )
    .await;
    let letters = until_letters::<D>(&store, 1).await;
    assert_eq!(letters[0].attempts, 3);
    // The first one once more if it was in a batch, which was rolled back.
    let mut attempts: Vec<u32> = script.tries(0, 0).iter().map(|it| it.attempt).collect();
    attempts.dedup();
    assert_eq!(attempts, [1, 2, 3]);
    until("the others are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 2
    })
    .await;
    // The successor, when its turn comes, has tries at once too.
    script.mend();
    let operator = posta.operator("a test").expect("an operator");
    operator
        .skip(&[letters[0].id], "not needed")
        .await
        .expect("a skip");
    until_quiet::<D>(&store, EFFECTS, 3).await;
    posta.stop().await.expect("a drain");
}

/// F19: the gaps are those that the failure asks for, with four runtimes as with one.
async fn a_failing_message_is_tried_at_its_pace_however_many_processes_there_are<
    D: TestDatabase,
>(
    broker: BrokerKind,
) {
    const DELAY: Duration = Duration::from_millis(700);
    let world = World::<D>::fresh(broker).await;
    let script = Script::one(0, 0, Act::RetryAfter(DELAY));
    let mut runtimes = Vec::new();
    for _ in 0..4 {
        let runtime = builder(&world)
            .lease_ttl(LONG)
            .consumer(scripted_consumer::<D>(&script).retry(quick_retry()))
            .start()
            .await
            .expect("a service");
        runtimes.push(runtime);
    }
    send(&runtimes[0], vec![envelope(0, 0)]).await;
    until("it was tried eight times", async || {
        script.tries(0, 0).len() >= 8
    })
    .await;
    for runtime in &runtimes {
        runtime.stop().await.expect("a drain");
    }
    let tries = script.tries(0, 0);
    for (pair, attempt) in tries.windows(2).zip(1..) {
        assert_eq!(pair[0].attempt, attempt);
        let gap = pair[1].at - pair[0].at;
        assert!(gap >= DELAY, "{gap:?} after try {attempt}");
    }
}

/// Beats nothing but its consumer.
#[derive(Debug, Serialize, Deserialize, Message)]
#[message(
    type = "test.stubborn",
    key = key,
    retry(attempts = 2, base = "10ms", cap = "20ms"),
    after_dead_letter = "continues"
)]
struct Stubborn {
    key: String,
}

async fn a_message_type_brings_its_own_policy<D: TestDatabase>(broker: BrokerKind) {
    async fn fail<D: TestDatabase>(
        message: Stubborn,
        _: &mut Tx<'_, D>,
        calls: Data<Calls>,
    ) -> Result<(), Failure> {
        calls.add();
        Err(Failure::new(format!("{message:?}")))
    }
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let (calls, others) = (Calls::default(), Calls::default());
    let posta = builder(&world)
        .lease_ttl(LONG)
        .consumer(
            Consumer::named("by_attribute")
                .retry(quick_retry().attempts_max(7))
                .data(calls.clone())
                .handle_with::<Stubborn, _>(fail::<D>),
        )
        .consumer(
            Consumer::named("by_builder")
                .retry_for::<Stubborn>(quick_retry().attempts_max(4))
                .data(others.clone())
                .handle_with::<Stubborn, _>(fail::<D>),
        )
        .start()
        .await
        .expect("a service");
    posta.declared().await;
    posta
        .transaction(async |tx| {
            tx.enqueue(&Stubborn {
                key: "k".to_owned(),
            })?;
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction");
    let letters = until_letters::<D>(&store, 2).await;
    posta.stop().await.expect("a drain");
    assert_eq!((calls.count(), others.count()), (2, 4));
    for letter in letters {
        let by_builder = letter.attempts == 4;
        assert_eq!(letter.parked, by_builder, "{letter:?}");
        assert!(by_builder || letter.attempts == 2);
    }
}

/// Every mistake in every policy, each with its place, at the start.
#[actix_rt::test]
async fn a_policy_that_cannot_hold_does_not_start() {
    let world = World::<Sqlite>::fresh(BrokerKind::Database).await;
    let started = builder(&world)
        .retry(RetryPolicy::default().attempts_max(0))
        .held_max(0)
        .connect_timeout(Duration::MAX)
        .consumer(
            effects_consumer::<Sqlite>(&Calls::default())
                .retry(quick_retry().deadline(Duration::from_secs(1800)))
                .retry_for::<Stubborn>(quick_retry().immediate(1000)),
        )
        .start()
        .await;
    let StartError::Configuration(mistakes) = started.expect_err("mistakes") else {
        panic!("another error")
    };
    for part in [
        "retry: attempts_max: 0; it must be 1 to 1000",
        "held_max: 0; it must be at least 1",
        "connect_timeout: 18446744073709551615.999999999s; it must be more than 0 and at most 600s",
        "consumer \"effects\", retry: deadline: 1800s; it must be 1ms to 1740s",
        "consumer \"effects\", retry_for \"test.stubborn\": immediate: 1000",
        "consumer \"effects\", retry_for \"test.stubborn\": it has no handler of this type",
    ] {
        let found = mistakes.iter().filter(|it| it.starts_with(part)).count();
        assert_eq!(found, 1, "{part}: {mistakes:?}");
    }
    assert_eq!(mistakes.len(), 6, "{mistakes:?}");
}
