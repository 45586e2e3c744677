//! F31 to F33: what messages hold, through a running actor system.

use std::time::Duration;

use posta::message::{EnvelopeErrorKind, MessageType};
use posta::outbox::{DispatchPolicy, EnqueueError};
use posta::retry::{AfterDeadLetter, RetryPolicy};
use posta::store::{LetterFilter, Store};
use posta::{Consumer, Envelope, Failure, OrderingKey, Outbox, Tx};

use super::{envelope, numbered, send};
use crate::world::effects::{Verdict, count, dead_letters_of, effects_of, judge, rows};
use crate::world::gate::Gate;
use crate::world::script::{Act, Script, scripted_consumer};
use crate::world::service::{
    Calls, EFFECTS, Echo, Numbered, builder, effects_consumer, effects_service, expected,
    quick_retry, until_quiet, whole_consumer,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    a_nul_in_a_key_is_refused_before_any_sql_and_the_transaction_goes_on,
    a_nul_in_a_handlers_error_is_stored_readably,
    a_message_that_cannot_be_decoded_is_set_aside_once_with_its_bytes,
    a_type_without_a_handler_is_set_aside_when_its_grace_is_over,
    a_type_without_a_handler_is_handled_in_order_when_its_handler_comes,
    a_type_without_a_handler_behind_a_failed_head_waits_for_its_handler,
    a_type_without_a_handler_that_is_replayed_too_soon_holds_up_nobody,
    a_message_over_the_limit_is_refused_and_the_transaction_goes_on,
    a_row_over_a_lowered_limit_is_set_aside_and_its_neighbours_are_sent,
);

/// F31: PostgreSQL's text can hold no NUL; no database gets to see one.
async fn a_nul_in_a_key_is_refused_before_any_sql_and_the_transaction_goes_on<D: TestDatabase>(
    broker: BrokerKind,
) {
    let refused = Numbered {
        key: "a\0b".to_owned(),
        ..numbered(0, 0)
    };
    let text = "ordering key holds the byte 0x00, which is not allowed there";
    refused_and_gone_on::<D>(broker, refused, text, |kind| {
        matches!(kind, EnvelopeErrorKind::Forbidden { byte: 0 })
    })
    .await;
}

/// F33: over the configured limit by one byte.
async fn a_message_over_the_limit_is_refused_and_the_transaction_goes_on<D: TestDatabase>(
    broker: BrokerKind,
) {
    let mut big = numbered(0, 0);
    let bytes = serde_json::to_vec(&big).expect("JSON").len();
    big.key = "k".repeat(LIMIT - bytes + big.key.len() + 1);
    let text = format!(
        "payload has {} bytes, more than the {LIMIT} allowed",
        LIMIT + 1
    );
    refused_and_gone_on::<D>(broker, big, &text, |kind| {
        matches!(kind, EnvelopeErrorKind::TooLong { bytes, bytes_max: LIMIT } if *bytes == LIMIT + 1)
    })
    .await;
}

/// Shorter than the longest key, so that a key alone can make a payload too long.
const LIMIT: usize = 200;

/// One transaction: a statement, a message that is refused, another statement, a message that is
/// not; and it commits.
async fn refused_and_gone_on<D: TestDatabase>(
    broker: BrokerKind,
    refused: Numbered,
    text: &str,
    is_kind: impl Fn(&EnvelopeErrorKind) -> bool,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        .payload_bytes_max(LIMIT)
        .consumer(effects_consumer::<D>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    posta
        .transaction(async |tx| {
            D::run(tx, "INSERT INTO state (key, number) VALUES ('k0', 0)").await?;
            match tx.enqueue(&refused).expect_err("a message that is refused") {
                EnqueueError::Message {
                    message_type,
                    source,
                } => {
                    assert_eq!(message_type, "test.numbered");
                    assert_eq!(source.to_string(), text);
                    assert!(is_kind(source.kind()), "{source:?}");
                }
                other => panic!("{other:?}"),
            }
            D::run(tx, "INSERT INTO state (key, number) VALUES ('k0', 1)").await?;
            tx.enqueue(&numbered(0, 0))?;
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction");
    // The same on a transaction of the application's own.
    let outbox = Outbox::<D>::new(world.tables.clone()).payload_bytes_max(LIMIT);
    let mut session = store.begin().await.expect("a transaction");
    let error = outbox.enqueue(&mut session, &refused).await;
    error.expect_err("a message that is refused");
    outbox
        .enqueue(&mut session, &numbered(0, 1))
        .await
        .expect("the transaction goes on");
    session.commit().await.expect("a commit");
    until_quiet::<D>(&store, EFFECTS, 2).await;
    posta.stop().await.expect("a drain");
    let state = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM state";
    assert_eq!(count::<D>(&store, state).await, 2);
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &expected(1, 2)), Verdict::default());
}

/// F31: a handler's own words hold what a database's text cannot.
async fn a_nul_in_a_handlers_error_is_stored_readably<D: TestDatabase>(broker: BrokerKind) {
    async fn fail<D: TestDatabase>(_: Numbered, _: &mut Tx<'_, D>) -> Result<(), Failure> {
        Err(Failure::new(r"a\0b \u0000 🚚 אבג".replace(r"\0", "\0")))
    }
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        .consumer(Consumer::named(EFFECTS).handle_with::<Numbered, _>(fail::<D>))
        .start()
        .await
        .expect("a running service");
    send(&posta, vec![envelope(0, 0)]).await;
    until("it was tried twice", async || {
        let told = r"attempts >= 2 AND last_error LIKE '%a_b _u0000 🚚 אבג%'";
        rows::<D>(&store, "retry", told).await == 1
    })
    .await;
    posta.stop().await.expect("a drain");
}

/// F32: what no codec can read goes to the dead letters at once, byte for byte; a field too many is
/// no mistake; the consumer lives on.
async fn a_message_that_cannot_be_decoded_is_set_aside_once_with_its_bytes<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let calls = Calls::default();
    let posta = builder(&world)
        .consumer(effects_consumer::<D>(&calls).retry(continues()))
        .start()
        .await
        .expect("a running service");
    let undecodable: [&[u8]; 5] = [
        // A variant and a field that only a later version knows.
        br#"{"key":"k1","number":1,"fate":"Explode"}"#,
        br#"{"key":"k1","number":2}"#,
        b"",
        b"\xff\xfe is no JSON",
        br#"{"a":"\ud800"}"#,
    ];
    let more = br#"{"key":"k0","number":0,"fate":"Succeed","more":[1]}"#;
    let mut envelopes: Vec<Envelope> = undecodable.iter().map(|bytes| raw(1, bytes)).collect();
    envelopes.insert(2, raw(0, more));
    let ids: Vec<String> = envelopes.iter().map(|it| it.id.to_string()).collect();
    send(&posta, envelopes).await;
    until_quiet::<D>(&store, EFFECTS, 1).await;
    // Alive, for the same key too.
    send(&posta, vec![envelope(0, 1), envelope(1, 0)]).await;
    until_quiet::<D>(&store, EFFECTS, 3).await;
    posta.stop().await.expect("a drain");
    assert_eq!(calls.count(), 3);

    let letters = dead_letters_of::<D>(&store).await;
    assert_eq!(letters.len(), undecodable.len());
    for (bytes, id) in undecodable
        .iter()
        .zip([0, 1, 3, 4, 5].map(|index| &ids[index]))
    {
        let mut found = letters
            .iter()
            .filter(|it| it.message_id.as_ref() == Some(id));
        let letter = found.next().expect("its dead letter");
        assert!(found.next().is_none());
        assert_eq!(letter.payload, *bytes);
        assert_eq!(letter.consumer.as_deref(), Some(EFFECTS));
        assert_eq!(letter.message_type.as_deref(), Some("test.numbered"));
        assert_eq!(letter.reason, "undecodable");
        assert!(
            letter
                .error
                .starts_with("the payload could not be decoded: "),
            "{}",
            letter.error
        );
    }
}

/// The key of a dead letter goes on.
fn continues() -> RetryPolicy {
    quick_retry().after_dead_letter(AfterDeadLetter::Continues)
}

fn raw(key: usize, payload: &[u8]) -> Envelope {
    let message_type = MessageType::new("test.numbered").expect("a type");
    Envelope::builder(message_type, payload.to_vec())
        .key(Some(OrderingKey::new(format!("k{key}")).expect("a key")))
        .content_type("application/json")
        .build()
        .expect("an envelope")
}

/// Leaves three messages of one key in the consumer's queue: number 0, one of a type that the
/// consumer used to take, number 1. Nothing runs afterwards.
async fn leave_an_echo_between_two<D: TestDatabase>(world: &World<D>) -> D::Store {
    let store = world.store();
    let old = builder(world)
        .consumer(whole_consumer::<D>(&Gate::default()))
        .start()
        .await
        .expect("a running service");
    send(&old, vec![envelope(1, 0)]).await;
    until_quiet::<D>(&store, EFFECTS, 1).await;
    old.stop().await.expect("a drain");
    // Dispatches, and handles nothing: what the old one has subscribed to is still there.
    let lonely = builder(world).start().await.expect("a running service");
    let echo = Envelope::of(&Echo {
        key: "k0".to_owned(),
        number: 0,
    });
    let echo = echo.expect("an envelope");
    send(&lonely, vec![envelope(0, 0), echo, envelope(0, 1)]).await;
    until("all three are in the queue", async || {
        rows::<D>(&store, "dispatched", "attempts = 0").await == 4
    })
    .await;
    lonely.stop().await.expect("a drain");
    store
}

/// F32: nobody brings the handler in time. The message goes, its key goes on.
async fn a_type_without_a_handler_is_set_aside_when_its_grace_is_over<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = leave_an_echo_between_two(&world).await;
    let posta = builder(&world)
        .unknown_type_grace(Duration::from_secs(1))
        .consumer(effects_consumer::<D>(&Calls::default()).retry(continues()))
        .start()
        .await
        .expect("a running service");
    until("the first one is through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 2
    })
    .await;
    until_quiet::<D>(&store, EFFECTS, 3).await;
    posta.stop().await.expect("a drain");
    let letters = dead_letters_of::<D>(&store).await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].reason, "unknown_type");
    assert_eq!(letters[0].payload, br#"{"key":"k0","number":0}"#);
    assert_eq!(letters[0].message_type.as_deref(), Some("test.echo"));
    assert_eq!(
        letters[0].error,
        "no handler for the message type \"test.echo\" in this process"
    );
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects[1..], &expected(1, 2)), Verdict::default());
}

/// F32: an operator replays what still has no handler. It waits, untried; the others of its
/// partition do not.
async fn a_type_without_a_handler_that_is_replayed_too_soon_holds_up_nobody<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = leave_an_echo_between_two(&world).await;
    let consumer = || effects_consumer::<D>(&Calls::default()).retry(continues());
    let hasty = builder(&world)
        .unknown_type_grace(Duration::from_millis(100))
        .consumer(consumer())
        .start()
        .await
        .expect("a running service");
    until_quiet::<D>(&store, EFFECTS, 3).await;
    hasty.stop().await.expect("a drain");

    let posta = builder(&world)
        .consumer(consumer())
        .start()
        .await
        .expect("a running service");
    let operator = posta.operator("a test").expect("an operator");
    let all = LetterFilter::default();
    let letters = operator.letters(&all, None, 10).await.expect("letters");
    assert_eq!(letters.len(), 1);
    operator
        .replay(letters[0].id, "too soon")
        .await
        .expect("a replay");
    until("it waits for a handler again", async || {
        rows::<D>(&store, "retry", UNHANDLED).await == 1
    })
    .await;
    let of_each_key: Vec<Envelope> = (0..20).map(|key| envelope(key, 2)).collect();
    let before = effects_of::<D>(&store, EFFECTS).await.len();
    let others = of_each_key.len() - 1;
    send(&posta, of_each_key).await;
    until("all but its key's are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == before + others
    })
    .await;
    posta.stop().await.expect("a drain");
}

/// F32: a rolling deployment brings the handler. Until then the message waits, and its key behind
/// it.
async fn a_type_without_a_handler_is_handled_in_order_when_its_handler_comes<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = leave_an_echo_between_two(&world).await;
    let without = effects_service(&world).await;
    until("two are on hold", async || {
        rows::<D>(&store, "retry", "1 = 1").await == 2
            && rows::<D>(&store, "retry", UNHANDLED).await == 1
    })
    .await;
    without.stop().await.expect("a drain");
    assert_eq!(effects_of::<D>(&store, EFFECTS).await.len(), 2);

    let with = builder(&world)
        .consumer(whole_consumer::<D>(&Gate::default()))
        .start()
        .await
        .expect("a running service");
    until_quiet::<D>(&store, EFFECTS, 3).await;
    with.stop().await.expect("a drain");
    assert!(dead_letters_of::<D>(&store).await.is_empty());
    assert_eq!(echo_between_two::<D>(&store).await, 1);
}

/// F32: the same for one that nobody has tried yet, since its key's head failed: when that is
/// through, it waits for its handler, and other keys go on.
async fn a_type_without_a_handler_behind_a_failed_head_waits_for_its_handler<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = leave_an_echo_between_two(&world).await;
    let script = Script::one(0, 0, Act::Fail);
    let without = builder(&world)
        .consumer(scripted_consumer::<D>(&script))
        .start()
        .await
        .expect("a running service");
    until("both wait behind the head", async || {
        rows::<D>(&store, "retry", "1 = 1").await == 3
    })
    .await;
    script.mend();
    until("the head is through, and the next one waits", async || {
        rows::<D>(&store, "retry", "1 = 1").await == 2
            && rows::<D>(&store, "retry", UNHANDLED).await == 1
    })
    .await;
    send(&without, vec![envelope(1, 1)]).await;
    until("another key goes on", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 3
    })
    .await;
    without.stop().await.expect("a drain");

    let with = builder(&world)
        .consumer(whole_consumer::<D>(&Gate::default()))
        .start()
        .await
        .expect("a running service");
    until_quiet::<D>(&store, EFFECTS, 4).await;
    with.stop().await.expect("a drain");
    assert!(dead_letters_of::<D>(&store).await.is_empty());
    assert_eq!(echo_between_two::<D>(&store).await, 1);
}

/// How often the echo took effect between the two messages of its key.
async fn echo_between_two<D: TestDatabase>(store: &D::Store) -> i64 {
    let order = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM effect a, effect e, effect b \
                 WHERE e.consumer = 'echoes' AND a.key = 'k0' AND a.number = 0 AND b.key = 'k0' AND b.number = 1 \
                   AND a.consumer = 'effects' AND b.consumer = 'effects' \
                   AND a.position < e.position AND e.position < b.position";
    count::<D>(store, order).await
}

/// Waiting for a handler is no try, however often it is looked at.
const UNHANDLED: &str = "unhandled_since IS NOT NULL AND attempts = 0 AND last_error IS NULL";

/// F33: the limit is lowered while rows wait that were within it.
async fn a_row_over_a_lowered_limit_is_set_aside_and_its_neighbours_are_sent<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let outbox = Outbox::<D>::new(world.tables.clone());
    let big: Vec<u8> = (0..100_001u32).map(|n| (n * 31 % 251) as u8).collect();
    let rows = [
        envelope(0, 0),
        raw(0, &big),
        raw(2, &big),
        envelope(0, 1),
        envelope(1, 0),
    ];
    let mut session = store.begin().await.expect("a transaction");
    outbox
        .enqueue_envelopes(&mut session, &rows)
        .await
        .expect("within the limit");
    session.commit().await.expect("a commit");
    let posta = builder(&world)
        .payload_bytes_max(100_000)
        .dispatch(DispatchPolicy::default().after_dead_letter(AfterDeadLetter::Continues))
        .consumer(effects_consumer::<D>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    until_quiet::<D>(&store, EFFECTS, 3).await;
    posta.stop().await.expect("a drain");
    let mut of_keys = expected(1, 2);
    of_keys.extend([("k1".to_owned(), 1)]);
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &of_keys), Verdict::default());
    let letters = dead_letters_of::<D>(&store).await;
    assert_eq!(letters.len(), 2);
    for letter in letters {
        assert_eq!(
            (letter.consumer.as_deref(), letter.reason.as_str()),
            (None, "too_large")
        );
        assert_eq!(
            letter.error,
            "payload has 100001 bytes, more than the 100000 allowed"
        );
        assert!(letter.payload == big, "its bytes");
    }
}
