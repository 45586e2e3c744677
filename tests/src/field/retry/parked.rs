use posta::message::MessageType;
use posta::retry::AfterDeadLetter;
use posta::store::{LetterState, NewRevision};
use posta::{Envelope, OrderingKey};

use super::three_tries;
use crate::field::{envelope, send};
use crate::world::effects::{Verdict, effects_of, judge, rows};
use crate::world::script::{Act, Script, letters, scripted_consumer, until_letters};
use crate::world::service::{EFFECTS, Fate, builder, enqueue, expected, quick_retry, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    successors_of_a_dead_letter_wait_and_run_in_order_when_it_is_through,
    a_key_that_continues_goes_on_behind_its_dead_letter,
    what_cannot_be_decoded_parks_its_key_until_it_is_edited,
    what_arrives_while_a_parked_key_is_released_neither_overtakes_nor_gets_lost,
);

async fn successors_of_a_dead_letter_wait_and_run_in_order_when_it_is_through<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let script = Script::one(0, 1, Act::Fail);
    let posta = three_tries(&world, &script)
        .start()
        .await
        .expect("a service");
    enqueue(&posta, 3, 0..6, |_, _| Fate::Succeed).await;
    let letter = until_letters::<D>(&store, 1).await.remove(0);
    enqueue(&posta, 3, 6..9, |_, _| Fate::Succeed).await;
    until("the other keys are through, this one waits", async || {
        let through = effects_of::<D>(&store, EFFECTS).await.len() == 19;
        through && rows::<D>(&store, "retry", "ordering_key = 'k0'").await == 8
    })
    .await;
    assert_eq!(
        rows::<D>(&store, "retry", "attempts > 0 AND NOT parked").await,
        0
    );
    let seen = letters::<D>(&store).await.remove(0);
    assert!(seen.parked);
    assert_eq!(seen.successors, 7);
    posta.stop().await.expect("a drain");

    // Another process, with the bug mended.
    script.mend();
    let posta = three_tries(&world, &script)
        .start()
        .await
        .expect("a service");
    let operator = posta.operator("a test").expect("an operator");
    operator
        .replay(letter.id, "mended")
        .await
        .expect("a replay");
    until_quiet::<D>(&store, EFFECTS, 27).await;
    posta.stop().await.expect("a drain");
    assert!(letters::<D>(&store).await.is_empty());
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(3, 9)), Verdict::default());
}

async fn a_key_that_continues_goes_on_behind_its_dead_letter<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let script = Script::one(0, 1, Act::Fail);
    let policy = quick_retry()
        .attempts_max(3)
        .after_dead_letter(AfterDeadLetter::Continues);
    let posta = builder(&world)
        .consumer(scripted_consumer::<D>(&script).retry(policy))
        .start()
        .await
        .expect("a service");
    enqueue(&posta, 2, 0..8, |_, _| Fate::Succeed).await;
    until_quiet::<D>(&store, EFFECTS, 15).await;
    let letter = letters::<D>(&store).await.remove(0);
    assert!(!letter.parked && letter.attempts == 3);
    // Replayed out of order: that is what this policy says.
    script.mend();
    let operator = posta.operator("a test").expect("an operator");
    operator
        .replay(letter.id, "mended")
        .await
        .expect("a replay");
    until_quiet::<D>(&store, EFFECTS, 16).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    let numbers: Vec<i64> = effects
        .iter()
        .filter(|it| it.key == "k0")
        .map(|it| it.number)
        .collect();
    assert_eq!(numbers, [0, 2, 3, 4, 5, 6, 7, 1]);
}

async fn what_cannot_be_decoded_parks_its_key_until_it_is_edited<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let script = Script::new(|_, _| Act::Succeed);
    let posta = three_tries(&world, &script)
        .start()
        .await
        .expect("a service");
    let message_type = MessageType::new("test.numbered").expect("a type");
    let broken = Envelope::builder(message_type, &br#"{"key":"k0","number":1}"#[..])
        .key(Some(OrderingKey::new("k0").expect("a key")))
        .content_type("application/json")
        .build()
        .expect("an envelope");
    send(
        &posta,
        vec![envelope(0, 0), broken, envelope(1, 0), envelope(0, 2)],
    )
    .await;
    let letter = until_letters::<D>(&store, 1).await.remove(0);
    assert_eq!(letter.reason, "undecodable");
    assert!(letter.parked);
    until("its successor waits", async || {
        rows::<D>(&store, "retry", "1 = 1").await == 2
            && effects_of::<D>(&store, EFFECTS).await.len() == 2
    })
    .await;
    let revision = NewRevision {
        payload: serde_json::to_vec(&crate::field::numbered(0, 1))
            .expect("JSON")
            .into(),
        version: letter.message.version,
        content_type: letter.message.content_type.clone(),
        who: "a test".to_owned(),
        reason: "the missing field".to_owned(),
    };
    let mut session = posta::store::Store::begin(&store)
        .await
        .expect("a transaction");
    posta::store::DeadLetterStore::revise(&store, &mut session, letter.id, &revision)
        .await
        .expect("a statement")
        .expect("a revision");
    session.commit().await.expect("a commit");
    let operator = posta.operator("a test").expect("an operator");
    operator
        .replay(letter.id, "edited")
        .await
        .expect("a replay");
    until_quiet::<D>(&store, EFFECTS, 4).await;
    posta.stop().await.expect("a drain");
    let mut of_keys = expected(1, 3);
    of_keys.extend([("k1".to_owned(), 1)]);
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &of_keys), Verdict::default());
}

/// A key is released again and again while its messages keep coming.
async fn what_arrives_while_a_parked_key_is_released_neither_overtakes_nor_gets_lost<
    D: TestDatabase,
>(
    broker: BrokerKind,
) {
    const ROUNDS: i64 = 5;
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    // Each tenth message is for an operator, once.
    let script = Script::new(|message, _| match message.number % 10 {
        0 => Act::DeadLetter,
        _ => Act::Succeed,
    });
    let posta = three_tries(&world, &script)
        .start()
        .await
        .expect("a service");
    let operator = posta.operator("a test").expect("an operator");
    enqueue(&posta, 1, 0..3, |_, _| Fate::Succeed).await;
    for round in 0..ROUNDS {
        let letter = until_letters::<D>(&store, 1).await.remove(0);
        assert_eq!(letter.state, LetterState::Dead);
        let next = round * 10 + 10;
        let coming = enqueue(&posta, 1, next - 7..next + 3, |_, _| Fate::Succeed);
        let letter = [letter.id];
        let released = operator.discard(&letter, "not needed");
        let (_, released) = futures_util::join!(coming, released);
        released.expect("a discard");
    }
    let letter = until_letters::<D>(&store, 1).await.remove(0);
    operator
        .discard(&[letter.id], "the last one")
        .await
        .expect("a discard");
    until_quiet::<D>(&store, EFFECTS, (ROUNDS * 10 + 3 - ROUNDS - 1) as usize).await;
    posta.stop().await.expect("a drain");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    let numbers: Vec<i64> = effects.iter().map(|effect| effect.number).collect();
    let all: Vec<i64> = (0..ROUNDS * 10 + 3).filter(|n| n % 10 != 0).collect();
    assert_eq!(numbers, all);
}
