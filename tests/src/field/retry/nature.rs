use std::time::Duration;

use posta::store::Store;

use super::three_tries;
use crate::field::{envelope, partitions_of, send};
use crate::world::effects::{Verdict, effects_of, judge, table};
use crate::world::script::{Act, Script, scripted_consumer, until_letters};
use crate::world::service::{EFFECTS, builder, expected, quick_retry, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    a_handler_that_knows_more_is_believed,
    a_handler_past_its_deadline_is_dropped_and_its_database_work_undone,
    a_panic_is_a_failed_try_of_its_own_message_only,
    a_message_whose_fate_the_database_refuses_holds_up_nobody,
);

async fn a_handler_that_knows_more_is_believed<D: TestDatabase>(broker: BrokerKind) {
    const DELAY: Duration = Duration::from_millis(800);
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let script = Script::new(|message, attempt| match (message.key.as_str(), attempt) {
        ("k0", _) => Act::Permanent,
        ("k1", _) => Act::DeadLetter,
        ("k2", 1) => Act::RetryAfter(DELAY),
        _ => Act::Succeed,
    });
    let posta = three_tries(&world, &script)
        .start()
        .await
        .expect("a service");
    send(&posta, (0..4).map(|key| envelope(key, 0)).collect()).await;
    let letters = until_letters::<D>(&store, 2).await;
    until("the other two are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 2
    })
    .await;
    posta.stop().await.expect("a drain");
    let mut reasons: Vec<(Option<&str>, &str, u32)> = letters
        .iter()
        .map(|it| (it.message.key.as_deref(), it.reason.as_str(), it.attempts))
        .collect();
    reasons.sort_unstable();
    assert_eq!(
        reasons,
        [
            (Some("k0"), "permanent", 1),
            (Some("k1"), "dead_lettered", 1)
        ]
    );
    let tries = script.tries(2, 0);
    // It may have been in a batch with others that failed: that try was rolled back, and was none.
    let (second, firsts) = tries.split_last().expect("tries");
    assert_eq!(second.attempt, 2);
    let gap = second.at - firsts.last().expect("a first try").at;
    assert!(gap >= DELAY, "{gap:?}");
}

async fn a_handler_past_its_deadline_is_dropped_and_its_database_work_undone<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let script = Script::new(|message, attempt| match (message.key.as_str(), attempt) {
        ("k0", _) | ("k1", 1) => Act::Hang,
        _ => Act::Succeed,
    });
    let policy = quick_retry()
        .attempts_max(2)
        .deadline(Duration::from_millis(200));
    let posta = builder(&world)
        .consumer(scripted_consumer::<D>(&script).retry(policy))
        .start()
        .await
        .expect("a service");
    send(&posta, (0..6).map(|key| envelope(key, 0)).collect()).await;
    let letters = until_letters::<D>(&store, 1).await;
    assert_eq!(
        (letters[0].reason.as_str(), letters[0].attempts),
        ("deadline", 2)
    );
    assert_eq!(
        letters[0].error,
        "the handler was not done within its deadline of 200ms"
    );
    until("the others are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 5
    })
    .await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert!(effects.iter().all(|effect| effect.key != "k0"));
}

/// F34: before and after an await.
async fn a_panic_is_a_failed_try_of_its_own_message_only<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let script = Script::new(|message, _| match message.key.as_str() {
        "k2" => Act::PanicAtOnce,
        "k3" => Act::Panic,
        _ => Act::Succeed,
    });
    let posta = three_tries(&world, &script)
        .start()
        .await
        .expect("a service");
    send(&posta, (0..6).map(|key| envelope(key, 0)).collect()).await;
    let letters = until_letters::<D>(&store, 2).await;
    // Later ones, of every partition.
    send(&posta, (4..12).map(|key| envelope(key, 1)).collect()).await;
    until("all others are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 12
    })
    .await;
    for name in partitions_of(EFFECTS, 4) {
        let child = posta.registry().child(&name).expect("a partition's actor");
        assert_eq!(child.restarts, 0, "{child:?}");
    }
    posta.stop().await.expect("a drain");
    for letter in letters {
        assert_eq!((letter.reason.as_str(), letter.attempts), ("panicked", 3));
        assert!(
            letter
                .error
                .starts_with("the handler panicked: told to panic"),
            "{}",
            letter.error
        );
    }
    let mut of_keys = expected(0, 0);
    of_keys.extend([0, 1].map(|key| (format!("k{key}"), 1)));
    of_keys.extend([4, 5].map(|key| (format!("k{key}"), 2)));
    let effects = effects_of::<D>(&store, EFFECTS).await;
    let first: Vec<_> = effects
        .into_iter()
        .filter(|it| it.key.len() == 2 && it.key.as_str() < "k6")
        .collect();
    assert_eq!(judge(&first, &of_keys), Verdict::default());
}

/// Whatever it is that cannot be written down of one message, the others of its partition go on, and
/// it does when it can.
async fn a_message_whose_fate_the_database_refuses_holds_up_nobody<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let run = async |sql: &str| {
        let sql = sql.replace("{retry}", &table::<D>(&store, "retry"));
        let mut session = store.begin().await.expect("a transaction");
        D::run(&mut session, &sql).await.expect("plain SQL");
        session.commit().await.expect("a commit");
    };
    let [refuse, take] = match D::KIND {
        "sqlite" => [
            "CREATE TRIGGER refuse BEFORE UPDATE ON {retry} WHEN NEW.attempts > 1 \
             BEGIN SELECT RAISE(ABORT, 'no second try'); END",
            "DROP TRIGGER refuse",
        ],
        _ => [
            "ALTER TABLE {retry} ADD CONSTRAINT refuse CHECK (attempts <= 1)",
            "ALTER TABLE {retry} DROP CONSTRAINT refuse",
        ],
    };
    run(refuse).await;
    let script = Script::one(0, 0, Act::Fail);
    let posta = three_tries(&world, &script)
        .start()
        .await
        .expect("a service");
    send(&posta, vec![envelope(0, 0), envelope(0, 1)]).await;
    until("it has failed twice", async || {
        let tries = script.tries(0, 0);
        tries.iter().any(|it| it.attempt == 2)
    })
    .await;
    let others = (1..20).map(|key| envelope(key, 0)).collect();
    send(&posta, others).await;
    until("the others are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 19
    })
    .await;
    script.mend();
    run(take).await;
    until_quiet::<D>(&store, EFFECTS, 21).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    let of_its_key: Vec<i64> = effects
        .iter()
        .filter(|it| it.key == "k0")
        .map(|it| it.number)
        .collect();
    assert_eq!(of_its_key, [0, 1]);
}
