//! F06, F07, F08, F21 and F33 where dispatch gives a message up: it is set aside, and its key is
//! parked or goes on.

use std::time::Duration;

use posta::broker::rabbitmq::RabbitMqOptions;
use posta::dead_letter::Origin;
use posta::lease::Resource;
use posta::message::MessageType;
use posta::operations::StartError;
use posta::outbox::{DispatchPolicy, Unroutable};
use posta::retry::AfterDeadLetter;
use posta::store::{
    DeadLetter, DeadLetterStore, LetterChange, LetterFilter, LetterId, LetterState, OutboxStore,
    Store,
};
use posta::{Broker, Envelope, OrderingKey, Outbox, Posta, Postgres, Sqlite};
use serde_json::json;

use super::{builder_on, envelope, owners, send};
use crate::harness::postgres;
use crate::harness::proxy::{Proxy, Traffic};
use crate::world::child::{Orders, Service};
use crate::world::effects::{Verdict, count, effects_of, judge, rows, table};
use crate::world::gate::Gate;
use crate::world::service::{
    Calls, ECHOES, EFFECTS, Echo, builder, effects_consumer, effects_service, expected, quick,
    until_quiet, whole_consumer,
};
use crate::world::{BrokerKind, TestDatabase, World, on_every_combination, until};

on_every_combination!(
    a_head_that_is_set_aside_lets_its_key_go_on_if_that_is_its_policy,
    a_head_that_is_set_aside_keeps_its_keys_place,
    a_key_goes_on_without_a_head_that_was_skipped,
    rows_behind_parked_keys_do_not_fill_the_batch,
    what_may_have_no_subscriber_is_dropped_on_record,
    a_row_that_is_no_message_parks_its_key_if_that_is_valid,
    a_row_that_is_too_large_parks_its_key_and_nobody_elses,
    a_process_that_dies_while_it_sets_aside_leaves_one_letter,
);

/// Few attempts, quickly.
fn thrice() -> DispatchPolicy {
    let (base, cap) = (Duration::from_millis(50), Duration::from_millis(200));
    DispatchPolicy::default().attempts_max(3).backoff(base, cap)
}

/// A message of a key that the consumer of effects does not take.
fn echo(key: usize, number: i64) -> Envelope {
    let key = format!("k{key}");
    Envelope::of(&Echo { key, number }).expect("an envelope")
}

/// Every dead letter of dispatch, whatever has become of it.
async fn letters_of<D: TestDatabase>(store: &D::Store) -> Vec<DeadLetter> {
    let filter = LetterFilter {
        origin: Some(Origin::Dispatch),
        states: vec![
            LetterState::Dead,
            LetterState::Replaying,
            LetterState::Replayed,
            LetterState::Discarded,
        ],
        ..LetterFilter::default()
    };
    let mut session = store.begin().await.expect("a transaction");
    let letters = store.letters(&mut session, &filter, None, 1000).await;
    session.commit().await.expect("a commit");
    letters.expect("the dead letters")
}

/// The one dead letter that there is to be.
async fn the_letter<D: TestDatabase>(store: &D::Store) -> DeadLetter {
    until("a message is set aside", async || {
        letters_of::<D>(store).await.len() == 1
    })
    .await;
    letters_of::<D>(store).await.remove(0)
}

/// An operator's change of a letter.
async fn change<D: TestDatabase>(store: &D::Store, letter: LetterId, change: LetterChange) {
    let mut session = store.begin().await.expect("a transaction");
    let changed = store.change_letters(&mut session, &[letter], change).await;
    assert_eq!(changed.expect("a change"), [letter]);
    let envelope = |letter: &DeadLetter| letter.message.clone().parse().expect("a message");
    match change {
        LetterChange::Replay => {
            let locked = store.lock_letters(&mut session, &[letter]).await;
            let envelope = envelope(&locked.expect("the letter")[0]);
            let readmitted = store.readmit(&mut session, letter, &envelope).await;
            assert!(readmitted.expect("a row"));
        }
        LetterChange::Skip | LetterChange::Discard => {
            let unparked = store.unpark(&mut session, letter).await;
            assert!(unparked.expect("its place"));
        }
        LetterChange::Restore | LetterChange::Recall => {}
    }
    session.commit().await.expect("a commit");
}

/// How many rows are in the outbox's places of dead letters.
async fn parked<D: TestDatabase>(store: &D::Store) -> u64 {
    let mut session = store.begin().await.expect("a transaction");
    let backlog = store.backlog(&mut session).await;
    session.commit().await.expect("a commit");
    backlog.expect("the backlog").parked
}

/// Sends a head that no queue takes with two successors, and a message of another key; returns the
/// head.
async fn send_a_head_and_others<D: TestDatabase>(posta: &Posta<D>) -> Envelope {
    let head = echo(0, 0);
    let rows = vec![head.clone(), envelope(0, 0), envelope(0, 1), envelope(1, 0)];
    send(posta, rows).await;
    head
}

/// What the letter of a head that no queue took tells.
fn assert_is_of(letter: &DeadLetter, head: &Envelope, attempts: u32) {
    assert_eq!(letter.origin, Origin::Dispatch);
    assert_eq!(letter.reason, "unroutable");
    assert!(letter.error.starts_with("unroutable: "), "{}", letter.error);
    assert!(!letter.fingerprint.is_empty());
    assert_eq!(letter.attempts, attempts);
    assert_eq!(letter.slot, Some(head.slot()));
    assert_eq!(letter.message.id, Some(head.id.to_string()));
    assert_eq!(letter.message.payload, head.payload);
    assert_eq!(letter.message.key.as_deref(), Some("k0"));
    let first = letter.first_failed_at.expect("its first failure");
    assert!(first <= letter.dead_at);
    assert!(attempts == 1 || first < letter.dead_at);
}

/// Every mistake in a policy is told when the runtime is built, with field, value and limit.
#[actix_rt::test]
async fn a_policy_out_of_its_limits_is_refused_at_start() {
    let world = World::<Sqlite>::fresh(BrokerKind::Database).await;
    let second = Duration::from_secs(1);
    let started = builder(&world)
        .dispatch(DispatchPolicy::default().attempts_max(0))
        .dispatch_for("order.placed", thrice().backoff(second * 2, second))
        .dispatch_for("no type", thrice())
        .start()
        .await;
    let StartError::Configuration(mistakes) = started.expect_err("mistakes") else {
        panic!("another error");
    };
    assert_eq!(
        mistakes,
        [
            "dispatch.attempts_max: 0; it must be 1 to 10000",
            "dispatch_for(\"no type\"): message type holds the byte 0x20, which is not allowed there",
            "dispatch_for(\"order.placed\").backoff: its base is 2s; it must be 1ms to its cap, 1s",
        ]
    );
}

/// F07, whole: row 1 of a key fails twice, then for good. Another key leaves at once; rows 2 and 3
/// only after row 1 has been set aside, in order; then a new row of the key.
async fn a_head_that_is_set_aside_lets_its_key_go_on_if_that_is_its_policy<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        .dispatch(DispatchPolicy::default().attempts_max(1))
        .dispatch_for(
            "test.echo",
            thrice().after_dead_letter(AfterDeadLetter::Continues),
        )
        .consumer(effects_consumer::<D>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let head = send_a_head_and_others(&posta).await;
    until_quiet::<D>(&store, EFFECTS, 3).await;
    send(&posta, vec![envelope(0, 2)]).await;
    until_quiet::<D>(&store, EFFECTS, 4).await;
    let counts = posta.status().await.expect("a status").counts;
    posta.stop().await.expect("a drain");
    assert_eq!((counts.dispatch_failures, counts.dead_letters), (2, 1));
    let letter = the_letter::<D>(&store).await;
    assert_is_of(&letter, &head, 3);
    assert_eq!((letter.state, letter.parked), (LetterState::Dead, false));
    let mut of_keys = expected(1, 3);
    of_keys.extend([("k1".to_owned(), 1)]);
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &of_keys), Verdict::default());
    let overtakers = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM {posta}dispatched d, {posta}dead_letter l \
                      WHERE d.ordering_key = 'k0' AND d.dispatched_at < l.dead_at";
    assert_eq!(count::<D>(&store, overtakers).await, 0);
}

/// F07 with the default policy: the key waits for an operator, over a restart too. A replay takes
/// the old place, and what waited follows in order.
async fn a_head_that_is_set_aside_keeps_its_keys_place<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        .dispatch(thrice())
        .consumer(effects_consumer::<D>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let head = send_a_head_and_others(&posta).await;
    let letter = the_letter::<D>(&store).await;
    assert_is_of(&letter, &head, 3);
    assert_eq!((letter.state, letter.parked), (LetterState::Dead, true));
    assert_eq!(letter.successors, 2);
    // More of the key, and of others.
    send(&posta, vec![envelope(0, 2), envelope(1, 1)]).await;
    until("the other key is through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 2
    })
    .await;
    let status = posta.status().await.expect("a status");
    assert_eq!(status.outbox.parked, 1);
    assert_eq!((status.outbox.rows, status.outbox.held), (3, 0));
    assert_eq!(status.dispatch_dead_letters, 1);
    posta.stop().await.expect("a drain");

    let posta = builder(&world)
        .dispatch(thrice())
        .consumer(whole_consumer::<D>(&Gate::default()))
        .start()
        .await
        .expect("a running service");
    // Its queue is there now, and still nothing of the key moves.
    posta.declared().await;
    send(&posta, vec![envelope(1, 2)]).await;
    until("the other key is through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 3
    })
    .await;
    assert_eq!(rows::<D>(&store, "outbox", "parked = parked").await, 4);
    change::<D>(&store, letter.id, LetterChange::Replay).await;
    posta.nudge();
    until_quiet::<D>(&store, EFFECTS, 6).await;
    until_quiet::<D>(&store, ECHOES, 1).await;
    posta.stop().await.expect("a drain");
    let replayed = the_letter::<D>(&store).await;
    assert_eq!(replayed.state, LetterState::Replayed);
    assert_eq!((replayed.replays, replayed.parked), (1, false));
    let effects = effects_of::<D>(&store, EFFECTS).await;
    let mut of_keys = expected(1, 3);
    of_keys.extend([("k1".to_owned(), 3)]);
    assert_eq!(judge(&effects, &of_keys), Verdict::default());
    let echoes = effects_of::<D>(&store, ECHOES).await;
    assert_eq!(echoes[0].message_id, head.id.to_string());
    let before_the_head = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM effect WHERE key = 'k0' \
                           AND position < (SELECT position FROM effect WHERE consumer = 'echoes')";
    assert_eq!(count::<D>(&store, before_the_head).await, 0);
}

/// A replay that fails again writes the same letter anew, in the same place; then an operator skips
/// it.
async fn a_key_goes_on_without_a_head_that_was_skipped<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        .dispatch(thrice().attempts_max(1))
        .consumer(effects_consumer::<D>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let head = send_a_head_and_others(&posta).await;
    let letter = the_letter::<D>(&store).await;
    change::<D>(&store, letter.id, LetterChange::Replay).await;
    posta.nudge();
    until("it is dead again", async || {
        let letters = letters_of::<D>(&store).await;
        letters[0].state == LetterState::Dead && letters[0].dead_at > letter.dead_at
    })
    .await;
    let again = the_letter::<D>(&store).await;
    assert_is_of(&again, &head, 1);
    assert_eq!((again.id, again.replays), (letter.id, 1));
    assert_eq!((again.parked, again.successors), (true, 2));
    assert_eq!(again.first_failed_at, letter.first_failed_at);
    assert_eq!(parked::<D>(&store).await, 1);
    change::<D>(&store, letter.id, LetterChange::Skip).await;
    posta.nudge();
    until_quiet::<D>(&store, EFFECTS, 3).await;
    posta.stop().await.expect("a drain");
    let skipped = the_letter::<D>(&store).await;
    assert_eq!((skipped.state, skipped.parked), (LetterState::Dead, false));
    let mut of_keys = expected(1, 2);
    of_keys.extend([("k1".to_owned(), 1)]);
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &of_keys), Verdict::default());
}

/// F06: keys that are parked, with rows behind them, are more than a batch holds, and all older
/// than one that can leave.
async fn rows_behind_parked_keys_do_not_fill_the_batch<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let service = || {
        builder(&world)
            .dispatch_batch(50)
            .arbiters(1)
            .dispatch(thrice().attempts_max(1))
            .consumer(effects_consumer::<D>(&Calls::default()))
            .start()
    };
    let posta = service().await.expect("a running service");
    let stuck = (10..70).flat_map(|key| [echo(key, 0), envelope(key, 0)]);
    send(&posta, stuck.collect()).await;
    until("all that nobody takes are set aside", async || {
        parked::<D>(&store).await == 60
    })
    .await;
    posta.stop().await.expect("a drain");
    let posta = service().await.expect("a running service");
    send(&posta, vec![envelope(1, 0)]).await;
    until("the fresh one is through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 1
    })
    .await;
    let counts = async || posta.status().await.expect("a status").counts;
    // It may be handled before its row is settled.
    until("it is settled", async || counts().await.dispatched == 1).await;
    assert_eq!(counts().await.dispatch_failures, 0);
    posta.stop().await.expect("a drain");
    assert_eq!(rows::<D>(&store, "outbox", "attempts = 1").await, 60);
    assert_eq!(rows::<D>(&store, "outbox", "attempts = 0").await, 60);
}

/// F21, and the type may have no subscriber: gone at the first attempt, on record, and its key goes
/// on. An operator can bring it back.
async fn what_may_have_no_subscriber_is_dropped_on_record<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = builder(&world)
        .dispatch_for(
            "test.echo",
            DispatchPolicy::default().unroutable(Unroutable::Discard),
        )
        .consumer(effects_consumer::<D>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let head = send_a_head_and_others(&posta).await;
    until_quiet::<D>(&store, EFFECTS, 3).await;
    let status = posta.status().await.expect("a status");
    posta.stop().await.expect("a drain");
    let counts = status.counts;
    assert_eq!((counts.discarded, counts.dead_letters), (1, 0));
    assert_eq!((counts.dispatch_failures, counts.dispatched), (0, 3));
    assert_eq!(status.dispatch_dead_letters, 0);
    let letter = the_letter::<D>(&store).await;
    assert_is_of(&letter, &head, 1);
    assert_eq!(
        (letter.state, letter.parked),
        (LetterState::Discarded, false)
    );
    assert!(letter.ended_at.is_some());
    let mut of_keys = expected(1, 2);
    of_keys.extend([("k1".to_owned(), 1)]);
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert_eq!(judge(&effects, &of_keys), Verdict::default());

    change::<D>(&store, letter.id, LetterChange::Restore).await;
    change::<D>(&store, letter.id, LetterChange::Replay).await;
    let posta = builder(&world)
        .consumer(whole_consumer::<D>(&Gate::default()))
        .start()
        .await
        .expect("a running service");
    until_quiet::<D>(&store, ECHOES, 1).await;
    posta.stop().await.expect("a drain");
    assert_eq!(the_letter::<D>(&store).await.state, LetterState::Replayed);
}

/// F05 with a key: a row that plain SQL wrote is no message, and its key is one.
async fn a_row_that_is_no_message_parks_its_key_if_that_is_valid<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let posta = effects_service(&world).await;
    let payload = match D::KIND {
        "sqlite" => "x'00ff7c'",
        _ => "'\\x00ff7c'::bytea",
    };
    let insert = format!(
        "INSERT INTO {} (message_type, ordering_key, payload) VALUES ('no type', 'k0', {payload})",
        table::<D>(&store, "outbox")
    );
    posta
        .transaction(async |tx| {
            let outbox = Outbox::<D>::new(world.tables.clone());
            outbox.enqueue_envelopes(tx, &[envelope(0, 0)]).await?;
            D::run(tx, &insert).await?;
            outbox
                .enqueue_envelopes(tx, &[envelope(0, 1), envelope(1, 0)])
                .await?;
            Ok::<_, anyhow::Error>(())
        })
        .await
        .expect("a transaction");
    posta.nudge();
    let letter = the_letter::<D>(&store).await;
    until("the others are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 2
    })
    .await;
    assert_eq!(letter.reason, "malformed");
    assert_eq!((letter.parked, letter.successors), (true, 1));
    assert_eq!(
        (letter.attempts, &letter.message.payload[..]),
        (0, &[0, 0xff, 0x7c][..])
    );
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert!(effects.iter().all(|effect| effect.number == 0));
    change::<D>(&store, letter.id, LetterChange::Discard).await;
    posta.nudge();
    until_quiet::<D>(&store, EFFECTS, 3).await;
    posta.stop().await.expect("a drain");
}

/// F33 with the default policy: neighbours of other keys and without one leave, the key itself
/// waits.
async fn a_row_that_is_too_large_parks_its_key_and_nobody_elses<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let big: Vec<u8> = (0..100_001u32).map(|n| (n * 31 % 251) as u8).collect();
    let mut large = envelope(0, 1);
    large.payload = big.clone().into();
    let mut session = store.begin().await.expect("a transaction");
    Outbox::<D>::new(world.tables.clone())
        .enqueue_envelopes(
            &mut session,
            &[envelope(0, 0), large, envelope(0, 1), envelope(1, 0)],
        )
        .await
        .expect("within the limit");
    session.commit().await.expect("a commit");
    let service = |bytes| {
        builder(&world)
            .payload_bytes_max(bytes)
            .consumer(effects_consumer::<D>(&Calls::default()))
            .start()
    };
    let posta = service(100_000).await.expect("a running service");
    let letter = the_letter::<D>(&store).await;
    until("the others are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() == 2
    })
    .await;
    posta.stop().await.expect("a drain");
    assert_eq!((letter.reason.as_str(), letter.attempts), ("too_large", 0));
    assert_eq!((letter.parked, letter.successors), (true, 1));
    assert!(letter.message.payload == big, "its bytes");
    let effects = effects_of::<D>(&store, EFFECTS).await;
    assert!(effects.iter().all(|effect| effect.number == 0));
    // With the old limit it can go out again, bytes as they were: what they say is for the handler.
    change::<D>(&store, letter.id, LetterChange::Replay).await;
    let posta = service(1_000_000).await.expect("a running service");
    until("it was dispatched", async || {
        rows::<D>(&store, "dispatched", "attempts = 0").await == 4
    })
    .await;
    posta.stop().await.expect("a drain");
    assert_eq!(the_letter::<D>(&store).await.state, LetterState::Replayed);
}

/// Dead between the broker's word and the letter, and between the letter and its commit: no attempt
/// is used up, nothing of the key moves, and in the end there is one letter.
async fn a_process_that_dies_while_it_sets_aside_leaves_one_letter<D: TestDatabase>(
    broker: BrokerKind,
) {
    let world = World::<D>::fresh(broker).await;
    let store = world.store();
    let orders = |crash_at: Option<&str>| Orders {
        crash_at: crash_at.map(str::to_owned),
        dispatch_attempts: Some(1),
        ..Orders::default()
    };
    let nobodys = MessageType::new("test.nobodys").expect("a type");
    let key = OrderingKey::new("k0").expect("a key");
    let head = Envelope::builder(nobodys, "head").key(Some(key));
    let head = head.build().expect("an envelope");
    let mut session = store.begin().await.expect("a transaction");
    Outbox::<D>::new(world.tables.clone())
        .enqueue_envelopes(&mut session, &[head.clone(), envelope(0, 0)])
        .await
        .expect("rows");
    session.commit().await.expect("a commit");
    for point in ["dispatch.published", "dispatch.settling"] {
        Service::start(&world, &orders(Some(point))).died().await;
        assert!(letters_of::<D>(&store).await.is_empty());
        assert_eq!(rows::<D>(&store, "outbox", "attempts = 0").await, 2);
    }
    let survivor = Service::start(&world, &orders(None));
    let letter = the_letter::<D>(&store).await;
    survivor.stop().await;
    assert_is_of(&letter, &head, 1);
    assert_eq!((letter.parked, letter.successors), (true, 1));
    assert!(effects_of::<D>(&store, EFFECTS).await.is_empty());
}

/// A queue that is full refuses: an attempt each time, the key waits, and with its attempts used up
/// the message is set aside.
#[actix_rt::test]
async fn what_the_broker_refuses_is_tried_and_then_set_aside() {
    let world = World::<Sqlite>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let full = json!({"x-max-length": 0, "x-overflow": "reject-publish"});
    world.vhost().make_queue("full", &full);
    let posta = builder(&world)
        .dispatch_for("test.echo", thrice())
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    until("the full queue is bound", async || {
        world.vhost().bind("full", "test.echo.*")
    })
    .await;
    let head = send_a_head_and_others(&posta).await;
    let letter = the_letter::<Sqlite>(&store).await;
    until("the other key is through", async || {
        effects_of::<Sqlite>(&store, EFFECTS).await.len() == 1
    })
    .await;
    posta.stop().await.expect("a drain");
    assert_eq!((letter.reason.as_str(), letter.attempts), ("refused", 3));
    assert_eq!(
        letter.error,
        "refused: the broker could not take it (basic.nack)"
    );
    assert_eq!(letter.message.id, Some(head.id.to_string()));
    assert_eq!((letter.parked, letter.successors), (true, 2));
}

/// What a wave cannot carry on this broker, known before it is sent: set aside at once, and the
/// neighbours in the wave leave.
#[actix_rt::test]
async fn what_this_broker_cannot_carry_is_set_aside_at_once() {
    let world = World::<Sqlite>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let options = RabbitMqOptions::from_url(&world.broker_url)
        .expect("a valid URL")
        .message_bytes_max(10_000);
    let posta = builder_on(&world, options)
        .dispatch(DispatchPolicy::default().after_dead_letter(AfterDeadLetter::Continues))
        .consumer(effects_consumer::<Sqlite>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let mut large = envelope(2, 0);
    large.payload = vec![b'x'; 10_001].into();
    let mut acted_on = envelope(3, 0);
    acted_on.headers.set("CC", "elsewhere").expect("a header");
    let ids = [large.id, acted_on.id].map(|id| Some(id.to_string()));
    let around = [envelope(0, 0), envelope(1, 0)];
    let [first, last] = around;
    send(&posta, vec![first, large, acted_on, last]).await;
    until_quiet::<Sqlite>(&store, EFFECTS, 2).await;
    posta.stop().await.expect("a drain");
    let letters = letters_of::<Sqlite>(&store).await;
    let told: Vec<_> = letters
        .iter()
        .map(|letter| {
            (
                letter.message.id.clone(),
                letter.reason.as_str(),
                letter.attempts,
            )
        })
        .collect();
    let [large, acted_on] = ids;
    assert_eq!(told, [(large, "too_large", 0), (acted_on, "malformed", 0)]);
}

/// F08 where a late owner would set aside what the new owner has already set aside: it leaves no
/// second letter, and its loss is counted.
#[actix_rt::test]
async fn a_dispatcher_that_comes_back_late_sets_nothing_aside() {
    let world = World::<Postgres>::fresh(BrokerKind::RabbitMq).await;
    let store = world.store();
    let database = Proxy::before(postgres::address()).await;
    let broker = Proxy::before(world.vhost().address()).await;
    let options = RabbitMqOptions::from_url(&broker.url(&world.broker_url))
        .expect("a valid URL")
        .publish_timeout(Duration::from_secs(120))
        .heartbeat(Duration::from_secs(60));
    let late = quick(Posta::<Postgres>::builder(
        &database.url(&world.database_url),
        Broker::rabbitmq(options),
    ))
    .tables(world.tables.clone())
    .connect_timeout(Duration::from_secs(2))
    .arbiters(1)
    .dispatch(thrice().attempts_max(1))
    .consumer(effects_consumer::<Postgres>(&Calls::default()))
    .start()
    .await
    .expect("a running service");
    send(&late, vec![envelope(0, 0)]).await;
    until_quiet::<Postgres>(&store, EFFECTS, 1).await;
    world.vhost().tap("copies", "test.numbered.*").await;

    // One that is confirmed, one that comes back; the answers do not arrive.
    broker.set(Traffic::HoldAnswers);
    send(&late, vec![envelope(1, 0), echo(2, 0), envelope(2, 0)]).await;
    world
        .vhost()
        .queue_until("copies", |queue| queue["messages"].as_u64() >= Some(1))
        .await;
    database.set(Traffic::Cut);
    let next = builder(&world)
        .dispatch(thrice().attempts_max(1))
        .consumer(effects_consumer::<Postgres>(&Calls::default()))
        .start()
        .await
        .expect("a running service");
    let letter = the_letter::<Postgres>(&store).await;
    until("the new owner has settled", async || {
        rows::<Postgres>(&store, "dispatched", "true").await == 2
    })
    .await;

    database.set(Traffic::Pass);
    broker.set(Traffic::Pass);
    until("the late one works again", async || {
        let shares = owners::<Postgres>(&store, &Resource::Lanes).await;
        shares.len() == 2 && late.registry().is_healthy()
    })
    .await;
    let lost = late.status().await.expect("a status").counts.dispatch_lost;
    late.stop().await.expect("a drain");
    next.stop().await.expect("a drain");
    assert_eq!(lost, 2);
    let the_same = the_letter::<Postgres>(&store).await;
    assert_eq!(the_same.dead_at, letter.dead_at);
    assert_eq!((the_same.parked, the_same.attempts), (true, 1));
    assert_eq!(parked::<Postgres>(&store).await, 1);
}
