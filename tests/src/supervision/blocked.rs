//! A handler that never yields: its thread cannot be ended, only left behind.

use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use posta::Tx;
use posta::{Consumer, Data, DeliveryInfo, Failure, MessageId, OrderingKey, Posta, Postgres, Slot};

use crate::world::effects::{Effect, Verdict, effects_of, judge};
use crate::world::service::{EFFECTS, Fate, Numbered, builder, enqueue, expected, until_quiet};
use crate::world::{BrokerKind, TestDatabase, World, until};

const PARTITIONS: u8 = 4;

/// Where the first handler of key `k0` blocks its thread until it is let go.
#[derive(Clone, Default)]
struct Blockade(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    entered: u32,
    open: bool,
}

impl Blockade {
    fn block(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().unwrap();
        state.entered += 1;
        let first = state.entered == 1;
        while first && !state.open {
            state = changed.wait(state).unwrap();
        }
    }

    fn entered(&self) -> u32 {
        self.0.0.lock().unwrap().entered
    }

    fn open(&self) {
        self.0.0.lock().unwrap().open = true;
        self.0.1.notify_all();
    }
}

/// A test that fails is not to leave a thread that blocks.
impl Drop for Opened {
    fn drop(&mut self) {
        self.0.open();
    }
}

struct Opened(Blockade);

async fn on_numbered<D: TestDatabase>(
    message: Numbered,
    tx: &mut Tx<'_, D>,
    info: DeliveryInfo,
    blockade: Data<Blockade>,
) -> Result<(), Failure> {
    let effect = Effect {
        consumer: EFFECTS.to_owned(),
        key: message.key.clone(),
        number: message.number,
        message_id: info.id.to_string(),
        payload: Vec::new(),
    };
    D::record(tx, effect).await?;
    if message.key == "k0" {
        blockade.block();
    }
    Ok(())
}

async fn service<D: TestDatabase>(world: &World<D>, blockade: &Blockade) -> Posta<D> {
    let consumer = Consumer::named(EFFECTS)
        .partitions(PARTITIONS)
        .data(blockade.clone())
        .handle_with::<Numbered, _>(on_numbered::<D>);
    builder(world)
        .arbiters(2)
        .grace(Duration::from_secs(2))
        .consumer(consumer)
        .start()
        .await
        .expect("a running service")
}

fn partition_of(key: usize) -> u8 {
    let key = OrderingKey::new(format!("k{key}")).expect("a key");
    Slot::of(Some(&key), MessageId::new()).number() / (64 / PARTITIONS)
}

async fn until_found<D: TestDatabase>(posta: &Posta<D>) {
    until("it is found", async || {
        let health = posta.health();
        let mut reasons = health.reasons.iter();
        reasons.any(|it| it.contains("an arbiter has not answered") && it.contains("\"effects "))
    })
    .await;
}

async fn everything_else_goes_on<D: TestDatabase>(broker: BrokerKind) {
    let world = World::<D>::fresh(broker).await;
    let (store, blockade) = (world.store(), Blockade::default());
    let posta = service(&world, &blockade).await;
    let _opened = Opened(blockade.clone());
    enqueue(&posta, 1, 0..1, |_, _| Fate::Succeed).await;
    until("it blocks", async || blockade.entered() > 0).await;
    until_found(&posta).await;
    let child = |name: &str| posta.registry().child(name).expect("a child");
    let blocker = posta.registry().children().into_iter();
    let blocker: Vec<_> = blocker
        .filter(|(_, it)| {
            it.last_error
                .as_ref()
                .is_some_and(|(it, _)| it.contains("does not yield"))
        })
        .collect();
    assert_eq!(blocker.len(), 1, "{blocker:?}");
    assert!(blocker[0].0.starts_with("effects "));
    // Of every partition but the one whose message waits, whatever thread it was on.
    enqueue(&posta, 12, 1..2, |_, _| Fate::Succeed).await;
    let others = (0..12)
        .filter(|key| partition_of(*key) != partition_of(0))
        .count();
    until("the others are through", async || {
        effects_of::<D>(&store, EFFECTS).await.len() >= others
    })
    .await;
    assert!(posta.health().live);
    blockade.open();
    until("its thread is back", async || {
        posta.health().reasons.is_empty()
    })
    .await;
    until_quiet::<D>(&store, EFFECTS, 13).await;
    assert!(child(&blocker[0].0).restarts >= 1);
    posta.stop().await.expect("a drain");
    let mut of_keys = expected(12, 2);
    for (key, count) in &mut of_keys {
        *count = if key == "k0" { 2 } else { 1 };
    }
    let mut effects = effects_of::<D>(&store, EFFECTS).await;
    for effect in effects.iter_mut().filter(|it| it.key != "k0") {
        effect.number -= 1;
    }
    assert_eq!(judge(&effects, &of_keys), Verdict::default());
}

#[actix_rt::test]
async fn a_blocked_thread_is_left_behind_and_its_message_takes_effect_once_on_rabbitmq() {
    everything_else_goes_on::<Postgres>(BrokerKind::RabbitMq).await;
}

#[actix_rt::test]
async fn a_blocked_thread_is_left_behind_and_its_message_takes_effect_once() {
    everything_else_goes_on::<Postgres>(BrokerKind::Database).await;
}

/// Stop and health get through, whatever hangs.
#[actix_rt::test]
async fn a_blocked_thread_does_not_hold_up_a_stop() {
    let world = World::<Postgres>::fresh(BrokerKind::Database).await;
    let blockade = Blockade::default();
    let posta = service(&world, &blockade).await;
    let _opened = Opened(blockade.clone());
    enqueue(&posta, 1, 0..1, |_, _| Fate::Succeed).await;
    until("it blocks", async || blockade.entered() > 0).await;
    let began = Instant::now();
    let error = posta.stop().await.expect_err("it cannot finish");
    // The grace of 2 s, and a second each for dropping and for giving back, on a machine under load.
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    assert!(!error.unfinished().is_empty(), "{error}");
    let health = posta.health();
    assert!(!health.ready, "{health}");
}
